"""Each change of Stripe's balance reaches the ledger once, whoever sees it first and however often."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, lock_accounts, open_accounts
from billing.models import LedgerCorrection, StripeBooking
from billing.money import MICROS_PER_CENT
from billing.rails.errors import RailError
from billing.rails.payments_in import cost_reference
from billing.rails.stripe.records import CURRENCY, Booking
from billing.transfer_codes import TransferCode

PLATFORM: Final = AccountName(AccountKind.STRIPE_BALANCE)
FEES: Final = AccountName(AccountKind.STRIPE_FEE_EXPENSE)
REF_CHARACTERS_MAX: Final = 120
TRANSFERS: Final = frozenset({"transfer", "transfer_refund", "transfer_cancel", "transfer_failure"})


class ForeignCurrency(RailError):
    """Stripe moved another currency than dollars; the operator has to look at it."""


def take(booking: Booking, group_id: UUID) -> bool:
    """Whether it is this caller's to post; the caller's transaction posts it or leaves it to the next one."""
    require_currency(booking)
    return claim(booking.id, group_id) and not _is_corrected(booking, group_id)


def _is_corrected(booking: Booking, group_id: UUID) -> bool:
    """Whether two operators booked it under the name that reconciliation has for it.

    Two entries of one transfer share that name, so it excludes corrections only. Both sides write its row, which makes
    the later one wait for the earlier.
    """
    name = ref_of(booking)
    if name == booking.id:
        return False
    row, _ = StripeBooking.objects.get_or_create(ref=name[:REF_CHARACTERS_MAX], defaults={"group_id": group_id})
    return LedgerCorrection.objects.filter(pk=row.group_id).exists()


def claim(booking_id: str, group_id: UUID) -> bool:
    """Claim a booking by its id; False where another caller has it."""
    _, is_mine = StripeBooking.objects.get_or_create(ref=booking_id, defaults={"group_id": group_id})
    return is_mine


def require_currency(booking: Booking) -> None:
    """Return only for dollars; raises ForeignCurrency."""
    if booking.currency != CURRENCY:
        raise ForeignCurrency(f"{booking.id} is in {booking.currency}, not in {CURRENCY}")


def lock(*names: AccountName, also: Collection[UUID] = ()) -> None:
    """Lock these and Stripe's own accounts in the one order for all, before posts that touch them one by one."""
    accounts = open_accounts([PLATFORM, FEES, *names])
    lock_accounts({account.pk for account in accounts if account.is_summed} | set(also))


def micros(cents: int) -> int:
    return cents * MICROS_PER_CENT


def ref_of(booking: Booking) -> str:
    """What the ledger calls it: a transfer, or its reversal, by its own name, which is all that a payout knows."""
    return booking.source if booking.type in TRANSFERS else booking.id


def change_balance(
    booking: Booking, *, against: AccountName, code: TransferCode, fee_from: AccountName = FEES, group_id: UUID
) -> None:
    """Post a booking that was taken: its amount between `against` and Stripe, its fee out of `fee_from`."""
    stripe, other, fees = open_accounts([PLATFORM, against, fee_from])
    ref = ref_of(booking)
    parts = ((micros(booking.amount_cents), other, ref), (-micros(booking.fee_cents), fees, cost_reference(ref)))
    transfers = [
        # What comes in is debited to the mirror, which is an asset.
        ledger.NewTransfer(stripe, account, amount, code, external_ref=name)
        if amount > 0
        else ledger.NewTransfer(account, stripe, -amount, code, external_ref=name)
        for amount, account, name in parts
        if amount
    ]
    ledger.post(transfers, group_id=group_id)
