"""Money set aside for a job: place, extend, release. Capturing is settlement's."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from billing import ledger
from billing.chart import open_account
from billing.errors import AlreadySettled, AmountInvalid, HoldConflict, HoldNotFound
from billing.kinds import AccountKind, TransferCode
from billing.models import Hold, Settlement
from billing.states import HoldState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth


def place_hold(*, owner_id: UUID, job_id: UUID, amount_usd_micros: int) -> Hold:
    """Move the amount from the owner's balance into the job's hold; a repeat returns the open hold.

    Raises InsufficientFunds (with missing_usd_micros), HoldConflict when a different hold is open, AlreadySettled.
    """
    _check_amount(amount_usd_micros)
    with transaction.atomic():
        if Settlement.objects.filter(job_id=job_id).exists():
            raise AlreadySettled(job_id=str(job_id))
        hold, is_new = Hold.objects.get_or_create(
            job_id=job_id,
            state=HoldState.OPEN,
            defaults={"owner_id": owner_id, "amount_usd_micros": amount_usd_micros},
        )
        if not is_new:
            if (hold.owner_id, hold.amount_usd_micros) != (owner_id, amount_usd_micros):
                raise HoldConflict(job_id=str(job_id), held_usd_micros=str(hold.amount_usd_micros))
            return hold
        _move_in(hold, amount_usd_micros, TransferCode.HOLD)
        record_birth(hold, data={"job_id": str(job_id), "amount_usd_micros": str(amount_usd_micros)})
        return hold


def extend_hold(job_id: UUID, *, amount_usd_micros: int) -> Hold:
    """Set aside this much more for the job. Not idempotent: the caller decides once. Raises as place_hold does."""
    _check_amount(amount_usd_micros)
    with transaction.atomic():
        hold = lock_open_hold(job_id)
        if hold is None:
            raise HoldNotFound(job_id=str(job_id))
        _move_in(hold, amount_usd_micros, TransferCode.HOLD_EXTENSION)
        hold.amount_usd_micros += amount_usd_micros
        hold.save(update_fields=["amount_usd_micros"])
        return hold


def release_hold(job_id: UUID, *, reason: str = "released") -> Hold:
    """Give all of it back; a repeat returns the released hold. Raises HoldNotFound, AlreadySettled."""
    with transaction.atomic():
        hold = lock_open_hold(job_id)
        if hold is None:
            return _released(job_id)
        ledger.post(
            [
                ledger.NewTransfer(
                    debit=open_account(AccountKind.JOB_HOLD, hold.owner_id, job_id=job_id),
                    credit=open_account(AccountKind.CUSTOMER_AVAILABLE, hold.owner_id),
                    amount=hold.amount_usd_micros,
                    code=TransferCode.HOLD_RELEASE,
                    job_id=job_id,
                )
            ],
            group_id=hold.pk,
        )
        return advance(hold, HoldState.RELEASED, reason=reason, closed_at=clock.now())


def is_open(job_id: UUID) -> bool:
    """Whether money is set aside for the job right now."""
    return Hold.objects.open().filter(job_id=job_id).exists()


def lock_open_hold(job_id: UUID) -> Hold | None:
    """The job's open hold with its row locked, so that of two who close it the second finds none."""
    return Hold.objects.open().filter(job_id=job_id).select_for_update().first()


def _check_amount(amount_usd_micros: int) -> None:
    if amount_usd_micros <= 0:
        raise AmountInvalid(value=str(amount_usd_micros))


def _move_in(hold: Hold, amount_usd_micros: int, code: TransferCode) -> None:
    ledger.post(
        [
            ledger.NewTransfer(
                debit=open_account(AccountKind.CUSTOMER_AVAILABLE, hold.owner_id),
                credit=open_account(AccountKind.JOB_HOLD, hold.owner_id, job_id=hold.job_id),
                amount=amount_usd_micros,
                code=code,
                job_id=hold.job_id,
            )
        ],
        group_id=hold.pk,
    )


def _released(job_id: UUID) -> Hold:
    hold = Hold.objects.filter(job_id=job_id).order_by("-created_at").first()
    if hold is None:
        raise HoldNotFound(job_id=str(job_id))
    if hold.state == HoldState.CAPTURED:
        raise AlreadySettled(job_id=str(job_id))
    return hold
