"""The end of a job's money: the hold is captured, split between providers and platform, and the rest goes back.

settle_job   once and for all
settle_part  what was earned so far of a running job; the rest stays reserved in a hold of its own
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from billing import functions
from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.charging import challenge_windows, promotions
from billing.charging.fees import split_fee
from billing.charging.holds import place_hold
from billing.charging.releasing import lock_shares, release_shares
from billing.errors import AccountFrozen, ChargeAboveHold, ChargesInvalid, HoldNotFound
from billing.fields import is_amount
from billing.functions import array, stored
from billing.models import Settlement, SettlementShare
from billing.money import BPS_WHOLE
from marketplace.foundation import clock

SETTLE_TRIES_MAX: Final = 2  # once more when an account has to be opened first


@dataclass(frozen=True)
class LeaseCharge:
    """What the customer owes for one lease, in base units of the hold's asset.

    `provider_id` is the owner of the provider's accounts: its organisation. `before`: what earlier settlements of the
    same job charged for the lease, so that all its fees together are rounded down once.
    """

    lease_id: UUID
    provider_id: UUID
    amount: int
    before: int = 0


def settle_job(*, job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> Settlement:
    """Split the job's hold once and for all; the parts add up to the hold exactly. A repeat returns the first.

    Raises ChargeAboveHold, ChargesInvalid, HoldNotFound.
    """
    with transaction.atomic():  # the lock of challenge_windows lasts as long
        return _settle(job_id, charges, fee_bps, is_final=True)


def settle_part(*, job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> Settlement:
    """Capture the hold for these charges; what is over of it is set aside again, in a new hold, in one transaction.

    The caller holds a lock of the job's and charges every unit once. Raises as settle_job and place_hold do.
    """
    with transaction.atomic():
        promotions.lock_job(job_id)
        settled = _settle(job_id, charges, fee_bps, is_final=False)
        if settled.refunded:
            place_hold(owner_id=settled.owner_id, job_id=job_id, amount=settled.refunded, asset_id=settled.asset_id)
        return settled


def charged_before(job_id: UUID) -> dict[UUID, int]:
    """Lease -> what the job's settlements charged for it so far."""
    shares = SettlementShare.objects.filter(settlement__job_id=job_id).order_by()
    return {lease_id: int(sum_) for lease_id, sum_ in shares.values_list("lease_id").annotate(Sum("charged"))}


def _settle(job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int, *, is_final: bool) -> Settlement:
    charges = sorted(charges, key=lambda charge: (charge.provider_id, charge.lease_id))
    _check_charges(job_id, charges, fee_bps)
    settlement, shares = _split(job_id, charges, fee_bps)
    settlement.is_final = is_final
    for _ in range(SETTLE_TRIES_MAX):
        outcome, settlement.hold_id, settlement.owner_id, settlement.asset_id, held = functions.call(
            "billing_settle_job",
            settlement.pk,
            job_id,
            is_final,
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
            [share.challenge_until for share in shares],
            settlement.created_at,
        )
        match outcome:
            case "settled":
                settlement.held, settlement.refunded = int(held), int(held) - settlement.charged
                return cast(Settlement, stored(settlement))
            case "done":
                return Settlement.objects.get(job_id=job_id, is_final=True)
            case "none":
                raise HoldNotFound(job_id=str(job_id))
            case "above":
                raise ChargeAboveHold(job_id=str(job_id), charged=str(settlement.charged), held=str(held))
            case "frozen":
                raise AccountFrozen(account=f"{AccountKind.JOB_HOLD} {settlement.owner_id} {job_id}")
        open_accounts(_targets(settlement, shares))  # a provider's first pay in this asset; then again
    raise AssertionError("the accounts of a settlement were opened and are not there")


def release_pending(now: datetime | None = None) -> int:
    """Make spendable what providers earned in settlements whose challenge window is over; how many shares that was."""
    now = now or clock.now()
    with transaction.atomic():
        shares = lock_shares(SettlementShare.objects.ripe(now))
        return release_shares(shares, {share.pk: share.paid for share in shares}, now)


def _check_charges(job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> None:
    if not is_amount(fee_bps, least=0) or fee_bps > BPS_WHOLE:
        raise ChargesInvalid(job_id=str(job_id), why=f"a fee of {fee_bps} basis points")
    if len({charge.lease_id for charge in charges}) != len(charges):
        raise ChargesInvalid(job_id=str(job_id), why="a lease is charged twice")
    if not all(is_amount(charge.amount, least=0) and is_amount(charge.before, least=0) for charge in charges):
        raise ChargesInvalid(job_id=str(job_id), why="a charge is below zero, or no whole number of base units")


def _split(job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> tuple[Settlement, list[SettlementShare]]:
    """Who gets what, all but the rest, which only the hold knows."""
    now = clock.now()
    settlement = Settlement(job_id=job_id, fee_bps=fee_bps, charged=0, fee=0, paid=0, created_at=now)
    shares = []
    for charge in charges:
        fee, paid = (
            through - before
            for through, before in zip(
                split_fee(charge.before + charge.amount, fee_bps), split_fee(charge.before, fee_bps), strict=True
            )
        )
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
            )
        )
    paid_to: Counter[UUID] = Counter()
    for share in shares:
        paid_to[share.provider_id] += share.paid
    ends = challenge_windows.ends_of(job_id, paid_to, now)
    for share in shares:
        share.challenge_until = ends[share.provider_id]
    # What the customer is shown: from then on not all of it can be contested any more.
    whole_window = now + timedelta(seconds=settings.SOUK_CHALLENGE_SECONDS)
    settlement.challenge_until = min(ends.values(), default=whole_window)
    return settlement, shares


def _targets(settlement: Settlement, shares: Sequence[SettlementShare]) -> list[AccountName]:
    """Every account that the settlement may pay into."""
    return [
        AccountName(AccountKind.FEE_REVENUE, asset_id=settlement.asset_id),
        AccountName(AccountKind.CUSTOMER_AVAILABLE, settlement.owner_id, asset_id=settlement.asset_id),
        *(
            AccountName(AccountKind.PROVIDER_PENDING, share.provider_id, asset_id=settlement.asset_id)
            for share in shares
        ),
    ]
