"""Money set aside for a job: place, extend, release. Capturing is settlement's."""

from __future__ import annotations

from uuid import UUID

from django.db import IntegrityError, transaction

from billing import ledger
from billing.chart import AccountName, open_accounts
from billing.errors import AlreadySettled, AmountInvalid, HoldConflict, HoldNotFound
from billing.kinds import AccountKind, TransferCode
from billing.models import Account, Hold, Settlement
from billing.models.ledger import USD_ASSET_ID
from billing.states import HoldState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth


def place_hold(*, owner_id: UUID, job_id: UUID, amount: int, asset_id: int = USD_ASSET_ID) -> Hold:
    """Move the amount from the owner's balance into the job's hold; a repeat returns the open hold.

    Raises InsufficientFunds (with `missing`), HoldConflict when a different hold is open, AlreadySettled.
    """
    _check_amount(amount)
    try:
        with transaction.atomic():
            if Settlement.objects.filter(job_id=job_id).exists():
                raise AlreadySettled(job_id=str(job_id))
            hold = Hold.objects.create(owner_id=owner_id, job_id=job_id, asset_id=asset_id, amount=amount)
            _move_in(hold, amount, TransferCode.HOLD)
            record_birth(hold, data={"job_id": str(job_id), "asset": asset_id, "amount": str(amount)})
            return hold
    except IntegrityError:
        # The database lets one hold be open per job: then that is the one.
        present = Hold.objects.open().filter(job_id=job_id).first()
        if present is None:
            raise
        if (present.owner_id, present.asset_id, present.amount) != (owner_id, asset_id, amount):
            raise HoldConflict(job_id=str(job_id), held=str(present.amount)) from None
        return present


def extend_hold(job_id: UUID, *, amount: int) -> Hold:
    """Set aside this much more for the job. Not idempotent: the caller decides once. Raises as place_hold does."""
    _check_amount(amount)
    with transaction.atomic():
        hold = lock_open_hold(job_id)
        if hold is None:
            raise HoldNotFound(job_id=str(job_id))
        _move_in(hold, amount, TransferCode.HOLD_EXTENSION)
        hold.amount += amount
        hold.save(update_fields=["amount"])
        return hold


def release_hold(job_id: UUID, *, reason: str = "released") -> Hold:
    """Give all of it back; a repeat returns the released hold. Raises HoldNotFound, AlreadySettled."""
    with transaction.atomic():
        hold = lock_open_hold(job_id)
        if hold is None:
            return _released(job_id)
        balance, set_aside = _accounts(hold)
        back = ledger.NewTransfer(set_aside, balance, hold.amount, TransferCode.HOLD_RELEASE, job_id=hold.job_id)
        ledger.post([back], group_id=hold.pk, savepoint=False)
        return advance(hold, HoldState.RELEASED, reason=reason, closed_at=clock.now())


def is_open(job_id: UUID) -> bool:
    """Whether money is set aside for the job right now."""
    return Hold.objects.open().filter(job_id=job_id).exists()


def lock_open_hold(job_id: UUID) -> Hold | None:
    """The job's open hold with its row locked, so that of two who close it the second finds none."""
    return Hold.objects.open().filter(job_id=job_id).select_for_update().first()


def _check_amount(amount: int) -> None:
    if amount <= 0:
        raise AmountInvalid(value=str(amount))


def _move_in(hold: Hold, amount: int, code: TransferCode) -> None:
    balance, set_aside = _accounts(hold)
    new = ledger.NewTransfer(balance, set_aside, amount, code, job_id=hold.job_id)
    ledger.post([new], group_id=hold.pk, savepoint=False)


def _accounts(hold: Hold) -> list[Account]:
    """The owner's balance, and what is set aside for the job."""
    return open_accounts(
        [
            AccountName(AccountKind.CUSTOMER_AVAILABLE, hold.owner_id, asset_id=hold.asset_id),
            AccountName(AccountKind.JOB_HOLD, hold.owner_id, hold.job_id, hold.asset_id),
        ]
    )


def _released(job_id: UUID) -> Hold:
    hold = Hold.objects.filter(job_id=job_id).order_by("-created_at").first()
    if hold is None:
        raise HoldNotFound(job_id=str(job_id))
    if hold.state == HoldState.CAPTURED:
        raise AlreadySettled(job_id=str(job_id))
    return hold
