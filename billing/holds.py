"""Money set aside for a job: place, extend, release. Capturing is settlement's."""

from __future__ import annotations

from uuid import UUID

from django.db import IntegrityError, transaction

from billing import ledger
from billing.chart import AccountName, open_accounts
from billing.errors import AlreadySettled, AmountInvalid, HoldConflict, HoldNotFound
from billing.kinds import AccountKind, TransferCode
from billing.models import Account, Hold, Settlement
from billing.states import HoldState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth


def place_hold(*, owner_id: UUID, job_id: UUID, amount_usd_micros: int) -> Hold:
    """Move the amount from the owner's balance into the job's hold; a repeat returns the open hold.

    Raises InsufficientFunds (with missing_usd_micros), HoldConflict when a different hold is open, AlreadySettled.
    """
    _check_amount(amount_usd_micros)
    try:
        with transaction.atomic():
            if Settlement.objects.filter(job_id=job_id).exists():
                raise AlreadySettled(job_id=str(job_id))
            hold = Hold.objects.create(owner_id=owner_id, job_id=job_id, amount_usd_micros=amount_usd_micros)
            _move_in(hold, amount_usd_micros, TransferCode.HOLD)
            record_birth(hold, data={"job_id": str(job_id), "amount_usd_micros": str(amount_usd_micros)})
            return hold
    except IntegrityError:
        # The database lets one hold be open per job: then that is the one.
        present = Hold.objects.open().filter(job_id=job_id).first()
        if present is None:
            raise
        if (present.owner_id, present.amount_usd_micros) != (owner_id, amount_usd_micros):
            raise HoldConflict(job_id=str(job_id), held_usd_micros=str(present.amount_usd_micros)) from None
        return present


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
        balance, set_aside = _accounts(hold)
        back = ledger.NewTransfer(
            set_aside, balance, hold.amount_usd_micros, TransferCode.HOLD_RELEASE, job_id=hold.job_id
        )
        ledger.post([back], group_id=hold.pk, savepoint=False)
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
    balance, set_aside = _accounts(hold)
    new = ledger.NewTransfer(balance, set_aside, amount_usd_micros, code, job_id=hold.job_id)
    ledger.post([new], group_id=hold.pk, savepoint=False)


def _accounts(hold: Hold) -> list[Account]:
    """The owner's balance, and what is set aside for the job."""
    return open_accounts(
        [
            AccountName(AccountKind.CUSTOMER_AVAILABLE, hold.owner_id),
            AccountName(AccountKind.JOB_HOLD, hold.owner_id, hold.job_id),
        ]
    )


def _released(job_id: UUID) -> Hold:
    hold = Hold.objects.filter(job_id=job_id).order_by("-created_at").first()
    if hold is None:
        raise HoldNotFound(job_id=str(job_id))
    if hold.state == HoldState.CAPTURED:
        raise AlreadySettled(job_id=str(job_id))
    return hold
