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
    """What the customer owes for one lease. `provider_id` is the owner of the provider's accounts: its organisation."""

    lease_id: UUID
    provider_id: UUID
    amount_usd_micros: int


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
            data={"settlement_id": str(settlement.pk), "charged_usd_micros": str(settlement.charged_usd_micros)},
            closed_at=settlement.created_at,
        )
        return settlement


def release_pending(now: datetime | None = None) -> int:
    """Make spendable what providers earned in settlements whose challenge window is over; how many shares that was."""
    now = now or clock.now()
    with transaction.atomic():
        ripe = SettlementShare.objects.ripe(now).order_by("challenge_until", "pk").select_related("settlement")
        shares = list(ripe.select_for_update(skip_locked=True, of=("self",))[:SHARES_PER_RELEASE_MAX])
        paid = [share for share in shares if share.paid_usd_micros]
        pending = open_accounts([AccountName(AccountKind.PROVIDER_PENDING, share.provider_id) for share in paid])
        available = open_accounts([AccountName(AccountKind.PROVIDER_AVAILABLE, share.provider_id) for share in paid])
        ledger.post(
            [
                ledger.NewTransfer(
                    debit, credit, share.paid_usd_micros, TransferCode.CHALLENGE_PASSED, job_id=share.settlement.job_id
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
    if any(charge.amount_usd_micros < 0 for charge in charges):
        raise ChargesInvalid(job_id=str(job_id), why="a charge is below zero")


def _split(hold: Hold, charges: Sequence[LeaseCharge], fee_bps: int) -> tuple[Settlement, list[SettlementShare]]:
    charged = sum(charge.amount_usd_micros for charge in charges)
    if charged > hold.amount_usd_micros:
        raise ChargeAboveHold(
            job_id=str(hold.job_id), charged_usd_micros=str(charged), held_usd_micros=str(hold.amount_usd_micros)
        )
    now = clock.now()
    challenge_until = now + timedelta(seconds=settings.SOUK_CHALLENGE_SECONDS)
    settlement = Settlement(
        job_id=hold.job_id,
        hold=hold,
        owner_id=hold.owner_id,
        fee_bps=fee_bps,
        held_usd_micros=hold.amount_usd_micros,
        charged_usd_micros=charged,
        fee_usd_micros=0,
        paid_usd_micros=0,
        refunded_usd_micros=hold.amount_usd_micros - charged,
        challenge_until=challenge_until,
        created_at=now,
    )
    shares = []
    for charge in charges:
        fee, paid = split_fee(charge.amount_usd_micros, fee_bps)
        settlement.fee_usd_micros += fee
        settlement.paid_usd_micros += paid
        shares.append(
            SettlementShare(
                settlement=settlement,
                lease_id=charge.lease_id,
                provider_id=charge.provider_id,
                charged_usd_micros=charge.amount_usd_micros,
                fee_usd_micros=fee,
                paid_usd_micros=paid,
                challenge_until=challenge_until,
            )
        )
    return settlement, shares


def _transfers(settlement: Settlement, shares: Sequence[SettlementShare]) -> list[ledger.NewTransfer]:
    """hold -> each provider, hold -> fee, hold -> customer; what is zero is left out."""
    job_id, owner_id, kind = settlement.job_id, settlement.owner_id, AccountKind
    pays = [
        (AccountName(kind.PROVIDER_PENDING, share.provider_id), share.paid_usd_micros, TransferCode.PROVIDER_PAY)
        for share in shares
    ]
    fee = (AccountName(kind.FEE_REVENUE), settlement.fee_usd_micros, TransferCode.PLATFORM_FEE)
    rest = (AccountName(kind.CUSTOMER_AVAILABLE, owner_id), settlement.refunded_usd_micros, TransferCode.HOLD_REST)
    parts = [part for part in [*pays, fee, rest] if part[1]]
    job_hold, *credits = open_accounts([AccountName(kind.JOB_HOLD, owner_id, job_id), *(part[0] for part in parts)])
    return [
        ledger.NewTransfer(job_hold, credit, amount, code, job_id=job_id)
        for credit, (_, amount, code) in zip(credits, parts, strict=True)
    ]
