"""Money set aside for a job: place, extend, release. Capturing is settlement's."""

from __future__ import annotations

from typing import Final, cast
from uuid import UUID

from django.db import transaction

from billing import functions
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts, open_usd
from billing.errors import (
    AccountFrozen,
    AlreadySettled,
    AmountInvalid,
    BillingError,
    HoldConflict,
    HoldNotFound,
    InsufficientFunds,
    TransferRefused,
)
from billing.fields import is_amount
from billing.functions import stored
from billing.models import Account, Asset, Hold
from billing.models.ledger import USD_ASSET_ID
from billing.money import AMOUNT_CHARACTERS_MAX
from billing.states import HoldState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.states import advance

PLACE_TRIES_MAX: Final = 3  # against a hold of the same job that others open and close meanwhile


def place_hold(*, owner_id: UUID, job_id: UUID, amount: int, asset_id: int = USD_ASSET_ID) -> Hold:
    """Move the amount from the owner's balance into the job's hold; a repeat returns the open hold.

    Raises InsufficientFunds (with `missing`), HoldConflict when a different hold is open, AlreadySettled.
    """
    _check_amount(amount)
    hold = Hold(owner_id=owner_id, job_id=job_id, asset_id=asset_id, amount=amount)
    balance, set_aside = _names(hold)
    for _ in range(PLACE_TRIES_MAX):
        outcome, available = functions.call(
            "billing_place_hold",
            hold.pk,
            owner_id,
            job_id,
            asset_id,
            amount,
            balance.id,
            set_aside.id,
            hold.created_at,
        )
        match outcome:
            case "placed":
                return cast(Hold, stored(hold))
            case "settled":
                raise AlreadySettled(job_id=str(job_id))
            case "frozen":
                raise AccountFrozen(account=f"{balance.kind} {owner_id}")
            case "short":
                raise _insufficient(hold, int(available or 0))
        # The database lets one hold be open per job: then that is the one, unless it was closed since.
        present = Hold.objects.open().filter(job_id=job_id).first()
        if present is not None:
            if (present.owner_id, present.asset_id, present.amount) != (owner_id, asset_id, amount):
                raise HoldConflict(job_id=str(job_id), held=str(present.amount))
            return present
    raise HoldConflict(job_id=str(job_id), held="an unknown number")


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
    if not is_amount(amount):
        raise AmountInvalid(value=str(amount)[:AMOUNT_CHARACTERS_MAX])


def _move_in(hold: Hold, amount: int, code: TransferCode) -> None:
    balance, set_aside = _accounts(hold)
    new = ledger.NewTransfer(balance, set_aside, amount, code, job_id=hold.job_id)
    ledger.post([new], group_id=hold.pk, savepoint=False)


def _accounts(hold: Hold) -> list[Account]:
    return open_accounts(_names(hold))


def _names(hold: Hold) -> list[AccountName]:
    """The owner's balance, and what is set aside for the job."""
    return [
        AccountName(AccountKind.CUSTOMER_AVAILABLE, hold.owner_id, asset_id=hold.asset_id),
        AccountName(AccountKind.JOB_HOLD, hold.owner_id, hold.job_id, hold.asset_id),
    ]


def _insufficient(hold: Hold, available: int) -> BillingError:
    if hold.asset_id == USD_ASSET_ID:
        open_usd()
    asset = Asset.objects.filter(pk=hold.asset_id).first()
    if asset is None:
        return TransferRefused(why=f"there is no asset {hold.asset_id}")
    return InsufficientFunds(
        account=AccountKind.CUSTOMER_AVAILABLE,
        available=available,
        needed=hold.amount,
        code=asset.code,
        scale=asset.scale,
    )


def _released(job_id: UUID) -> Hold:
    hold = Hold.objects.filter(job_id=job_id).order_by("-created_at").first()
    if hold is None:
        raise HoldNotFound(job_id=str(job_id))
    if hold.state == HoldState.CAPTURED:
        raise AlreadySettled(job_id=str(job_id))
    return hold
