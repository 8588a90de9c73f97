"""A payout when its provider asks, in one transaction: its money is set aside before anybody outside is asked.

reserve (reserving.py) -> enqueue (one call to the rail for many payouts)       see submission.py for what follows
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from django.db import transaction

from billing.breaker import require_closed
from billing.fiat import claims
from billing.models import Asset, Payout, PayoutSettings
from billing.payouts.errors import PayoutNotFailed, PayoutSettingsMissing
from billing.payouts.reserving import open_payers, reserve_payouts
from billing.states import PayoutState
from marketplace.foundation import outbox
from marketplace.foundation.errors import NotFound
from marketplace.foundation.ids import new_id

SUBMIT: Final = "payouts.submit"
PAYOUTS_PER_CALL_MAX: Final = 200
FAILURES_MAX: Final = 5  # in a row; then the provider has to change its settings, or ask


def pay_now(provider_id: UUID, asset: Asset, *, actor: str) -> Payout:
    """Reserve everything that this provider can be paid, and write down the call to the rail.

    What it owes for a chargeback of its own is paid first. Raises PayoutsStopped, PayoutSettingsMissing,
    PayoutUnderWay, RailOff, NothingToPay, AccountFrozen.
    """
    require_closed()
    claims.collect([provider_id])
    return _pay(provider_id, asset, actor=actor)


def retry(provider_id: UUID, payout_id: UUID, *, actor: str) -> Payout:
    """A new payout in place of one that failed or came back; a repeat returns the first one's.

    Raises NotFound, PayoutNotFailed, and what pay_now raises.
    """
    failed = Payout.objects.select_related("asset").filter(pk=payout_id, provider_id=provider_id).first()
    if failed is None:
        raise NotFound
    if failed.state not in {PayoutState.FAILED, PayoutState.RETURNED}:
        raise PayoutNotFailed(payout_id=str(payout_id), state=failed.state)
    claims.collect([provider_id])
    with transaction.atomic():
        Payout.objects.select_for_update().get(pk=failed.pk)  # of two who retry, the second finds the first one's
        again = Payout.objects.filter(retry_of=failed).first()
        if again is not None:
            return again
        require_closed()
        return _pay(provider_id, failed.asset, actor=actor, retry_of=failed)


def enqueue(payouts: Sequence[Payout]) -> None:
    """Write down one call for every PAYOUTS_PER_CALL_MAX payouts of a rail and asset, all or none."""
    groups: dict[tuple[str, int], list[Payout]] = defaultdict(list)
    for payout in payouts:
        groups[payout.rail, payout.asset_id].append(payout)
    with transaction.atomic():
        for (rail, _), members in sorted(groups.items()):
            for start in range(0, len(members), PAYOUTS_PER_CALL_MAX):
                batch_id = new_id()
                ids = [payout.pk for payout in members[start : start + PAYOUTS_PER_CALL_MAX]]
                Payout.objects.filter(pk__in=ids).update(batch_id=batch_id)
                outbox.enqueue(SUBMIT, f"{SUBMIT}:{batch_id}", {"rail": rail, "batch_id": str(batch_id)})


def _pay(provider_id: UUID, asset: Asset, *, actor: str, retry_of: Payout | None = None) -> Payout:
    with transaction.atomic():
        row = PayoutSettings.objects.select_for_update().filter(provider_id=provider_id, asset=asset).first()
        if row is None:
            raise PayoutSettingsMissing(asset=asset.code)
        payout = _reserve_one(row, actor=actor, retry_of=retry_of)
        if row.failures:
            row.failures, row.last_error = 0, ""  # the provider has acted
            row.save(update_fields=["failures", "last_error"])
        enqueue([payout])
        return payout


def _reserve_one(row: PayoutSettings, *, actor: str, retry_of: Payout | None) -> Payout:
    open_payers([row])
    done = reserve_payouts([row], actor=actor, is_patient=True, retry_of=retry_of)
    for refusal in done.refused.values():
        raise refusal
    [payout] = done.payouts
    return payout
