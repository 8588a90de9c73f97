"""All rails in one table: which directions each has, where the ledger books what it moves, and which are on.

rail     in    out   mirror           its price            a payout moves the mirror
stripe   yes   yes   stripe_balance   stripe_fee_expense   when it is confirmed
chain    yes   yes   chain_escrow     gas_expense          when its provider claims: the indexer's work
fake     yes   yes   operator_cash    stripe_fee_expense   when it is confirmed

To add a rail: write a module with a PaymentRail (payments_in.py is the interface), a PayoutRail (payouts.py) or both,
and add a row. Payouts are on where SOUK_PAYOUT_RAILS names the rail, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.utils.module_loading import import_string

from billing.account_kinds import AccountKind
from billing.books.deposits import Source
from billing.models.ledger import Asset
from billing.money import MICROS_PER_CENT
from billing.rails.errors import RailUnknown
from billing.rails.payments_in import PaymentRail, RequestedPayments
from billing.rails.payouts import PayoutRail


@dataclass(frozen=True)
class RailRow:
    """What the rest of billing has to know of a rail without asking it."""

    payments: str  # dotted path of its PaymentRail; empty: no money comes in by it
    payouts: str  # dotted path of its PayoutRail; empty: no money leaves by it. Imported only where it is on
    mirror: AccountKind
    cost: AccountKind
    asset_kind: str
    unit: int = 1  # base units of the smallest amount that it can move; what is left stays with the provider
    moves_mirror: bool = True  # False: the mirror moves later, when the outside reports that the money left
    at_a_time: int = 200  # payouts submitted between two checks whether payouts are stopped
    is_wallet: bool = False  # the destination is an address, and its owner signs for it
    is_pretended: bool = False  # no money moves outside


RAILS: Final[dict[str, RailRow]] = {
    "stripe": RailRow(
        payments="billing.rails.stripe.payment_rail.StripePayments",
        payouts="billing.rails.stripe.payout_rail.StripePayouts",
        mirror=AccountKind.STRIPE_BALANCE,
        cost=AccountKind.STRIPE_FEE_EXPENSE,
        asset_kind=Asset.Kind.FIAT,
        unit=MICROS_PER_CENT,
        at_a_time=20,
    ),
    "chain": RailRow(
        payments="billing.chain.payment_rail.ChainPayments",
        payouts="billing.chain.payout_rail.ChainPayouts",
        mirror=AccountKind.CHAIN_ESCROW,
        cost=AccountKind.GAS_EXPENSE,
        asset_kind=Asset.Kind.ERC20,
        moves_mirror=False,
        is_wallet=True,
    ),
    "fake": RailRow(
        payments="billing.rails.fake.payment_rail.FakePayments",
        payouts="billing.rails.fake.payout_rail.FakePayouts",
        mirror=AccountKind.OPERATOR_CASH,
        cost=AccountKind.STRIPE_FEE_EXPENSE,
        asset_kind=Asset.Kind.FIAT,
        unit=MICROS_PER_CENT,
        at_a_time=20,
        is_pretended=True,
    ),
}


def row_of(name: str) -> RailRow:
    """The row of a rail, on or off: what it confirmed earlier can still be returned. Raises RailUnknown."""
    try:
        return RAILS[name]
    except KeyError:
        raise RailUnknown(name) from None


def source_of(name: str) -> Source:
    """What a deposit by this rail is booked as; raises RailUnknown."""
    return Source(name, row_of(name).mirror)


def payouts_on() -> list[str]:
    """The rails that this marketplace pays by (SOUK_PAYOUT_RAILS), in their order."""
    return [name for name in settings.SOUK_PAYOUT_RAILS if name in RAILS and RAILS[name].payouts]


def open_payouts(name: str) -> PayoutRail:
    """The rail as a way out; raises RailUnknown where it is not on, FakeMoneyRefused for pretended money in public."""
    if name not in payouts_on():
        raise RailUnknown(name)
    rail: PayoutRail = import_string(RAILS[name].payouts)()
    return rail


def requested_payments_on() -> list[RequestedPayments]:
    """The rails by which a customer can ask to pay in dollars, in the table's order; raises FakeMoneyRefused."""
    rows = {name: row for name, row in RAILS.items() if row.payments and row.asset_kind == Asset.Kind.FIAT}
    classes: dict[str, type[PaymentRail]] = {name: import_string(row.payments) for name, row in rows.items()}
    return [one() for one in classes.values() if issubclass(one, RequestedPayments) and one.is_on()]


def can_refund(name: str) -> bool:
    """Whether the rail sends parts of a payment back, on or off: a refund waits until it is on. Raises RailUnknown."""
    rail: type[PaymentRail] = import_string(row_of(name).payments)
    return issubclass(rail, RequestedPayments) and rail.can_refund


def open_payments(name: str) -> RequestedPayments:
    """The rail as a way in; raises RailUnknown where it is not on, FakeMoneyRefused for pretended money in public."""
    for rail in requested_payments_on():
        if rail.name == name:
            return rail
    raise RailUnknown(name)
