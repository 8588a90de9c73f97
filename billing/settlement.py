"""The end of a job's money: the hold is captured, split between providers and platform, and the rest goes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing import ledger
from billing.chart import AccountName, open_accounts
from billing.errors import ChargeAboveHold, ChargesInvalid, HoldNotFound
from billing.holds import lock_open_hold
from billing.kinds import AccountKind, TransferCode
from billing.models import Hold, Settlement, SettlementShare
from billing.money import BPS_WHOLE, split_fee
from billing.states import HoldState
from marketplace.foundation import clock
from marketplace.foundation.states import advance

SHARES_PER_RELEASE_MAX: Final = 1000  # released in one transaction; the next tick takes the next


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
    with transaction.atomic():
        # 1. Of two who settle, the second waits here and then finds no open hold.
        hold = lock_open_hold(job_id)
        if hold is None:
            settlement = Settlement.objects.filter(job_id=job_id).first()
            if settlement is None:
                raise HoldNotFound(job_id=str(job_id))
            return settlement
        # 2. Who gets what.
        settlement, shares = _split(hold, charges, fee_bps)
        settlement.save(force_insert=True)
        SettlementShare.objects.bulk_create(shares)
        # 3. The money follows, and the hold is closed.
        ledger.post(_transfers(settlement, shares), group_id=settlement.pk, savepoint=False)
        advance(
            hold,
            HoldState.CAPTURED,
            reason="settled",
            data={"settlement_id": str(settlement.pk), "charged": str(settlement.charged)},
            closed_at=settlement.created_at,
        )
        return settlement


def release_pending(now: datetime | None = None) -> int:
    """Make spendable what providers earned in settlements whose challenge window is over; how many shares that was."""
    now = now or clock.now()
    with transaction.atomic():
        ripe = SettlementShare.objects.ripe(now).order_by("challenge_until", "pk").select_related("settlement")
        shares = list(ripe.select_for_update(skip_locked=True, of=("self",))[:SHARES_PER_RELEASE_MAX])
        paid = [share for share in shares if share.paid]
        pending = open_accounts([_of_provider(AccountKind.PROVIDER_PENDING, share) for share in paid])
        available = open_accounts([_of_provider(AccountKind.PROVIDER_AVAILABLE, share) for share in paid])
        ledger.post(
            [
                ledger.NewTransfer(
                    debit, credit, share.paid, TransferCode.CHALLENGE_PASSED, job_id=share.settlement.job_id
                )
                for debit, credit, share in zip(pending, available, paid, strict=True)
            ]
        )
        SettlementShare.objects.filter(pk__in=[share.pk for share in shares]).update(released_at=now)
        return len(shares)


def _check_charges(job_id: UUID, charges: Sequence[LeaseCharge], fee_bps: int) -> None:
    if not 0 <= fee_bps <= BPS_WHOLE:
        raise ChargesInvalid(job_id=str(job_id), why=f"a fee of {fee_bps} basis points")
    if len({charge.lease_id for charge in charges}) != len(charges):
        raise ChargesInvalid(job_id=str(job_id), why="a lease is charged twice")
    if any(charge.amount < 0 for charge in charges):
        raise ChargesInvalid(job_id=str(job_id), why="a charge is below zero")


def _split(hold: Hold, charges: Sequence[LeaseCharge], fee_bps: int) -> tuple[Settlement, list[SettlementShare]]:
    charged = sum(charge.amount for charge in charges)
    if charged > hold.amount:
        raise ChargeAboveHold(job_id=str(hold.job_id), charged=str(charged), held=str(hold.amount))
    now = clock.now()
    challenge_until = now + timedelta(seconds=settings.SOUK_CHALLENGE_SECONDS)
    settlement = Settlement(
        job_id=hold.job_id,
        hold=hold,
        owner_id=hold.owner_id,
        asset_id=hold.asset_id,
        fee_bps=fee_bps,
        held=hold.amount,
        charged=charged,
        fee=0,
        paid=0,
        refunded=hold.amount - charged,
        challenge_until=challenge_until,
        created_at=now,
    )
    shares = []
    for charge in charges:
        fee, paid = split_fee(charge.amount, fee_bps)
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


def _transfers(settlement: Settlement, shares: Sequence[SettlementShare]) -> list[ledger.NewTransfer]:
    """hold -> each provider, hold -> fee, hold -> customer; what is zero is left out."""
    job_id, owner_id, kind = settlement.job_id, settlement.owner_id, AccountKind
    pays = [(_of_provider(kind.PROVIDER_PENDING, share), share.paid, TransferCode.PROVIDER_PAY) for share in shares]
    asset_id = settlement.asset_id
    fee = (AccountName(kind.FEE_REVENUE, asset_id=asset_id), settlement.fee, TransferCode.PLATFORM_FEE)
    balance = AccountName(kind.CUSTOMER_AVAILABLE, owner_id, asset_id=asset_id)
    rest = (balance, settlement.refunded, TransferCode.HOLD_REST)
    parts = [part for part in [*pays, fee, rest] if part[1]]
    source = AccountName(kind.JOB_HOLD, owner_id, job_id, asset_id)
    job_hold, *credits = open_accounts([source, *(part[0] for part in parts)])
    return [
        ledger.NewTransfer(job_hold, credit, amount, code, job_id=job_id)
        for credit, (_, amount, code) in zip(credits, parts, strict=True)
    ]


def _of_provider(kind: AccountKind, share: SettlementShare) -> AccountName:
    return AccountName(kind, share.provider_id, asset_id=share.settlement.asset_id)
