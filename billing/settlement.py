"""The end of a job's money: the hold is captured, split between providers and platform, and the rest goes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from billing import functions, ledger
from billing.chart import AccountName, open_accounts
from billing.errors import AccountFrozen, BillingError, ChargeAboveHold, ChargesInvalid, HoldNotFound
from billing.fields import is_amount
from billing.functions import array, stored
from billing.kinds import AccountKind, TransferCode
from billing.models import Account, Settlement, SettlementShare
from billing.money import BPS_WHOLE, split_fee
from marketplace.foundation import clock
from marketplace.foundation.exclusive import alone

SETTLE_TRIES_MAX: Final = 2  # once more when an account has to be opened first
SHARES_PER_RELEASE_MAX: Final = 1000  # released in one transaction; the next tick takes the next

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseCharge:
    """What the customer owes for one lease, in base units of the hold's asset.

    `provider_id` is the owner of the provider's accounts: its organisation.
    """

    lease_id: UUID
    provider_id: UUID
    amount: int


def settle_job(*, job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> Settlement:
    """Split the job's hold once and for all; the parts add up to the hold exactly. A repeat returns the first.

    Raises ChargeAboveHold, ChargesInvalid, HoldNotFound.
    """
    charges = sorted(charges, key=lambda charge: (charge.provider_id, charge.lease_id))
    _check_charges(job_id, charges, fee_bps)
    settlement, shares = _split(job_id, charges, fee_bps)
    for _ in range(SETTLE_TRIES_MAX):
        outcome, settlement.hold_id, settlement.owner_id, settlement.asset_id, held = functions.call(
            "billing_settle_job",
            settlement.pk,
            job_id,
            fee_bps,
            settlement.charged,
            settlement.fee,
            settlement.paid,
            array(share.pk for share in shares),
            array(share.lease_id for share in shares),
            array(share.provider_id for share in shares),
            array(share.charged for share in shares),
            array(share.fee for share in shares),
            array(share.paid for share in shares),
            settlement.challenge_until,
            settlement.created_at,
        )
        match outcome:
            case "settled":
                settlement.held, settlement.refunded = int(held), int(held) - settlement.charged
                return cast(Settlement, stored(settlement))
            case "done":
                return Settlement.objects.get(job_id=job_id)
            case "none":
                raise HoldNotFound(job_id=str(job_id))
            case "above":
                raise ChargeAboveHold(job_id=str(job_id), charged=str(settlement.charged), held=str(held))
            case "frozen":
                raise AccountFrozen(account=f"{AccountKind.JOB_HOLD} {settlement.owner_id} {job_id}")
        open_accounts(_targets(settlement, shares))  # a provider's first pay in this asset; then again
    raise AssertionError("the accounts of a settlement were opened and are not there")


def release_pending(now: datetime | None = None) -> int:
    """Make spendable what providers earned in settlements whose challenge window is over; how many shares that was.

    A provider who is frozen keeps nobody else waiting, and is paid once the operator has unfrozen them.
    """
    now = now or clock.now()
    frozen = Account.objects.filter(
        owner_id=OuterRef("provider_id"),
        asset_id=OuterRef("settlement__asset_id"),
        kind=AccountKind.PROVIDER_PENDING,
        is_frozen=True,
    )
    with transaction.atomic():
        ripe = SettlementShare.objects.ripe(now).filter(~Exists(frozen)).order_by("challenge_until", "pk")
        locked = ripe.select_related("settlement").select_for_update(skip_locked=True, of=("self",))
        shares = list(locked[:SHARES_PER_RELEASE_MAX])
        try:
            return _release(shares, now)
        except BillingError:
            log.exception("Providers' pay could not be released at once; each is tried alone.")
        released = 0
        for share in shares:
            with alone("A provider's pay could not be released.", lease_id=str(share.lease_id)):
                released += _release([share], now)
        return released


def _release(shares: Sequence[SettlementShare], now: datetime) -> int:
    """All of these or none."""
    with transaction.atomic():
        paid = [share for share in shares if share.paid]
        pending = open_accounts([_of_provider(AccountKind.PROVIDER_PENDING, share) for share in paid])
        available = open_accounts([_of_provider(AccountKind.PROVIDER_AVAILABLE, share) for share in paid])
        ledger.post(
            [
                ledger.NewTransfer(
                    debit, credit, share.paid, TransferCode.CHALLENGE_PASSED, job_id=share.settlement.job_id
                )
                for debit, credit, share in zip(pending, available, paid, strict=True)
            ],
            savepoint=False,
        )
        SettlementShare.objects.filter(pk__in=[share.pk for share in shares]).update(released_at=now)
        return len(shares)


def _check_charges(job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> None:
    if not is_amount(fee_bps, least=0) or fee_bps > BPS_WHOLE:
        raise ChargesInvalid(job_id=str(job_id), why=f"a fee of {fee_bps} basis points")
    if len({charge.lease_id for charge in charges}) != len(charges):
        raise ChargesInvalid(job_id=str(job_id), why="a lease is charged twice")
    if not all(is_amount(charge.amount, least=0) for charge in charges):
        raise ChargesInvalid(job_id=str(job_id), why="a charge is below zero, or no whole number of base units")


def _split(job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> tuple[Settlement, list[SettlementShare]]:
    """Who gets what, all but the rest, which only the hold knows."""
    now = clock.now()
    challenge_until = now + timedelta(seconds=settings.SOUK_CHALLENGE_SECONDS)
    settlement = Settlement(
        job_id=job_id, fee_bps=fee_bps, charged=0, fee=0, paid=0, challenge_until=challenge_until, created_at=now
    )
    shares = []
    for charge in charges:
        fee, paid = split_fee(charge.amount, fee_bps)
        settlement.charged += charge.amount
        settlement.fee += fee
        settlement.paid += paid
        shares.append(
            SettlementShare(
                settlement=settlement,
                lease_id=charge.lease_id,
                provider_id=charge.provider_id,
                charged=charge.amount,
                fee=fee,
                paid=paid,
                challenge_until=challenge_until,
            )
        )
    return settlement, shares


def _targets(settlement: Settlement, shares: Sequence[SettlementShare]) -> list[AccountName]:
    """Every account that the settlement may pay into."""
    return [
        AccountName(AccountKind.FEE_REVENUE, asset_id=settlement.asset_id),
        AccountName(AccountKind.CUSTOMER_AVAILABLE, settlement.owner_id, asset_id=settlement.asset_id),
        *(_of_provider(AccountKind.PROVIDER_PENDING, share) for share in shares),
    ]


def _of_provider(kind: AccountKind, share: SettlementShare) -> AccountName:
    return AccountName(kind, share.provider_id, asset_id=share.settlement.asset_id)
