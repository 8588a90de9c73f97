"""Providers' pay becomes spendable once its challenge window is over: provider_pending -> provider_available.

The one way in which it does, for pay that nobody contested (settlement.py) and for what a fine left (offences.py):
lock_shares -> release_shares, in one transaction of the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.errors import BillingError
from billing.models import Account, SettlementShare
from billing.transfer_codes import TransferCode
from marketplace.foundation.exclusive import log_failures

SHARES_MAX: Final = 1_000  # released in one transaction; the next tick takes the next

log = logging.getLogger(__name__)


def lock_shares(ripe: QuerySet[SettlementShare]) -> list[SettlementShare]:
    """The oldest of these that nobody else has, under their locks, with their settlements.

    A provider who is frozen keeps nobody else waiting, and is paid once the operator has unfrozen them.
    """
    frozen = Account.objects.filter(
        owner_id=OuterRef("provider_id"),
        asset_id=OuterRef("settlement__asset_id"),
        kind=AccountKind.PROVIDER_PENDING,
        is_frozen=True,
    )
    rows = ripe.filter(~Exists(frozen)).order_by("challenge_until", "pk").select_related("settlement")
    return list(rows.select_for_update(skip_locked=True, of=("self",))[:SHARES_MAX])


def release_shares(shares: Sequence[SettlementShare], amounts: Mapping[UUID, int], now: datetime) -> int:
    """Release of each share its amount (by the share's id), all at once; one that cannot be keeps no other waiting.

    How many were released.
    """
    try:
        return _release(shares, amounts, now)
    except BillingError:
        log.exception("Providers' pay could not be released at once; each is tried alone.")
    released = 0
    for share in shares:
        with log_failures("A provider's pay could not be released.", lease_id=str(share.lease_id)):
            released += _release([share], amounts, now)
    return released


def _release(shares: Sequence[SettlementShare], amounts: Mapping[UUID, int], now: datetime) -> int:
    """All of these or none."""
    with transaction.atomic():
        paid = [share for share in shares if amounts[share.pk]]
        pending = open_accounts([_of_provider(AccountKind.PROVIDER_PENDING, share) for share in paid])
        available = open_accounts([_of_provider(AccountKind.PROVIDER_AVAILABLE, share) for share in paid])
        code = TransferCode.CHALLENGE_PASSED
        ledger.post(
            [
                ledger.NewTransfer(debit, credit, amounts[share.pk], code, job_id=share.settlement.job_id)
                for debit, credit, share in zip(pending, available, paid, strict=True)
            ],
            savepoint=False,
        )
        SettlementShare.objects.filter(pk__in=[share.pk for share in shares]).update(released_at=now)
        return len(shares)


def _of_provider(kind: AccountKind, share: SettlementShare) -> AccountName:
    return AccountName(kind, share.provider_id, asset_id=share.settlement.asset_id)
