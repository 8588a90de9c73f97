"""One payout from wish to reservation, in one transaction: its money is set aside before anybody outside is asked.

request -> reserve -> enqueue (one call to the rail for many payouts)       see submission.py for what follows
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction

from billing import ledger
from billing.balances import balance
from billing.chart import AccountName, open_accounts
from billing.kinds import AccountKind, TransferCode, TransferMode
from billing.models import Account, Asset, Payout, PayoutSettings
from billing.payouts import reserve
from billing.payouts.errors import NothingToPay, PayoutNotFailed, PayoutSettingsMissing, PayoutUnderWay
from billing.payouts.preferences import adopt_ripe_destination
from billing.rails import registry
from billing.reconciliation.breaker import require_closed
from billing.states import PAYOUT_STATES_OPEN, PayoutState
from marketplace.foundation import outbox
from marketplace.foundation.errors import NotFound
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

SUBMIT: Final = "payouts.submit"
PAYOUTS_PER_CALL_MAX: Final = 200
FAILURES_MAX: Final = 5  # in a row; then the provider has to change its settings, or ask


def pay_now(provider_id: UUID, asset: Asset, *, actor: str, retry_of: Payout | None = None) -> Payout:
    """Reserve everything that this provider can be paid, and write down the call to the rail.

    Raises PayoutsStopped, PayoutSettingsMissing, PayoutUnderWay, NothingToPay.
    """
    require_closed()
    with transaction.atomic():
        row = PayoutSettings.objects.select_for_update().filter(provider_id=provider_id, asset=asset).first()
        if row is None:
            raise PayoutSettingsMissing(asset=asset.code)
        payout = request_and_reserve(row, actor=actor, retry_of=retry_of)
        if row.failures:
            row.failures, row.last_error = 0, ""  # the provider has acted
            row.save(update_fields=["failures", "last_error"])
        enqueue([payout])
        return payout


def retry(provider_id: UUID, payout_id: UUID, *, actor: str) -> Payout:
    """A new payout in place of one that failed or came back; a repeat returns the first one's.

    Raises NotFound, PayoutNotFailed, and what pay_now raises.
    """
    failed = Payout.objects.select_related("asset").filter(pk=payout_id, provider_id=provider_id).first()
    if failed is None:
        raise NotFound
    if failed.state not in {PayoutState.FAILED, PayoutState.RETURNED}:
        raise PayoutNotFailed(payout_id=str(payout_id), state=failed.state)
    with transaction.atomic():
        Payout.objects.select_for_update().get(pk=failed.pk)  # of two who retry, the second finds the first one's
        again = Payout.objects.filter(retry_of=failed).first()
        return again or pay_now(provider_id, failed.asset, actor=actor, retry_of=failed)


def request_and_reserve(row: PayoutSettings, *, actor: str, retry_of: Payout | None = None) -> Payout:
    """A payout of all that is there, with its money set aside; the caller holds the lock of the settings.

    Raises PayoutUnderWay, NothingToPay, AccountFrozen.
    """
    adopt_ripe_destination(row)
    if Payout.objects.filter(provider_id=row.provider_id, asset_id=row.asset_id, state__in=PAYOUT_STATES_OPEN).exists():
        raise PayoutUnderWay
    _lock_accounts(row)
    reserve.keep(row.provider_id, asset_id=row.asset_id)
    amount = payable(row)
    if amount < max(row.minimum, 1):
        asset = row.asset
        raise NothingToPay(available=asset.show(amount), minimum=asset.show(row.minimum))
    try:
        with transaction.atomic():
            payout = Payout.objects.create(
                provider_id=row.provider_id,
                rail=row.rail,
                asset_id=row.asset_id,
                amount=amount,
                destination=row.destination,
                retry_of=retry_of,
            )
    except IntegrityError as error:
        raise PayoutUnderWay from error
    record_birth(payout, actor=actor, data={"amount": str(amount), "destination": row.destination})
    return _reserve(payout, actor=actor)


def payable(row: PayoutSettings) -> int:
    """What the rail could pay now: all that is available, less the dust that it cannot move."""
    available = balance(row.provider_id, AccountKind.PROVIDER_AVAILABLE, asset_id=row.asset_id)
    return max(available, 0) // registry.book_of(row.rail).unit * registry.book_of(row.rail).unit


def enqueue(payouts: list[Payout]) -> None:
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


def _lock_accounts(row: PayoutSettings) -> None:
    """All that this payout will touch, at once and in one order, so that it never waits for who waits for it."""
    kinds = (AccountKind.PROVIDER_AVAILABLE, AccountKind.PROVIDER_RESERVE, AccountKind.PAYOUT_CLEARING)
    accounts = open_accounts([AccountName(kind, row.provider_id, asset_id=row.asset_id) for kind in kinds])
    ids = [account.pk for account in accounts]
    list(Account.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True))


def _reserve(payout: Payout, *, actor: str) -> Payout:
    """Set the money aside: from here on it is neither spendable nor gone. P21: never more than is available."""
    names = [
        AccountName(kind, payout.provider_id, asset_id=payout.asset_id)
        for kind in (AccountKind.PROVIDER_AVAILABLE, AccountKind.PAYOUT_CLEARING)
    ]
    available, clearing = open_accounts(names)
    [pending] = ledger.post(
        [
            ledger.NewTransfer(
                available,
                clearing,
                payout.amount,
                TransferCode.PAYOUT,
                mode=TransferMode.PENDING,
                external_ref=f"payout:{payout.pk}",
            )
        ],
        group_id=payout.pk,
    )
    return advance(payout, PayoutState.RESERVED, reason="reserved", actor=actor, pending_transfer=pending)
