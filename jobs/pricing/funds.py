"""What an organisation can spend on a job now: its balance, and the credit that it was given."""

from __future__ import annotations

from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.charging import promotions
from jobs.errors import NotEnoughMoney
from jobs.payment.terms import Payment


def spendable_units(organisation_id: UUID, asset_id: int) -> int:
    """Base units of an asset that a hold may take."""
    has = balance(organisation_id, AccountKind.CUSTOMER_AVAILABLE, asset_id=asset_id)
    return has + promotions.spendable(organisation_id, asset_id)


def require_money(organisation_id: UUID, asset_id: int, payment: Payment, units: int, *, cap: int) -> None:
    """Raise NotEnoughMoney, with the missing amount, where a hold of so many units could not be placed now."""
    missing = units - spendable_units(organisation_id, asset_id)
    if missing > 0:
        raise NotEnoughMoney(payment, missing_units=missing, cap_usd_micros=cap)
