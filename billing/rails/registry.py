"""Which rails there are, which of them are on, and where each books what it moved.

rail     mirror           its price         books the mirror
stripe   stripe_balance   stripe_fee_expense when confirmed
chain    chain_escrow     gas_expense        when its provider claims: the indexer's work, not the payout's
fake     operator_cash    stripe_fee_expense when confirmed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.utils.module_loading import import_string

from billing.kinds import AccountKind
from billing.models.ledger import Asset
from billing.money import MICROS_PER_CENT
from billing.rails.base import Rail


@dataclass(frozen=True)
class RailBook:
    """What the ledger has to know of a rail without asking it."""

    path: str  # of its class: imported only where the rail is on
    mirror: AccountKind
    cost: AccountKind
    asset_kind: str
    unit: int = 1  # base units of the smallest amount that it can move; what is left stays with the provider
    books_mirror: bool = True  # False: the mirror moves later, when the outside says that the money left
    at_a_time: int = 200  # payouts handed over before one looks again whether payouts are stopped
    is_wallet: bool = False  # the destination is an address, and its owner signs for it


BOOKS: Final[Mapping[str, RailBook]] = {
    "stripe": RailBook(
        "billing.rails.stripe_payouts.StripeRail",
        AccountKind.STRIPE_BALANCE,
        AccountKind.STRIPE_FEE_EXPENSE,
        Asset.Kind.FIAT,
        unit=MICROS_PER_CENT,
        at_a_time=20,
    ),
    "chain": RailBook(
        "billing.rails.chain_rail.ChainRail",
        AccountKind.CHAIN_ESCROW,
        AccountKind.GAS_EXPENSE,
        Asset.Kind.ERC20,
        books_mirror=False,
        is_wallet=True,
    ),
    "fake": RailBook(
        "billing.rails.fake_rail.FakeRail",
        AccountKind.OPERATOR_CASH,
        AccountKind.STRIPE_FEE_EXPENSE,
        Asset.Kind.FIAT,
        unit=MICROS_PER_CENT,
        at_a_time=20,
    ),
}


class RailUnknown(LookupError):
    """No rail of this name is on."""


def names_on() -> list[str]:
    """The rails that this marketplace pays by (SOUK_PAYOUT_RAILS), in their order."""
    return [name for name in settings.SOUK_PAYOUT_RAILS if name in BOOKS]


def book_of(name: str) -> RailBook:
    """The book of a rail, on or off: what it confirmed earlier can still be returned. Raises RailUnknown."""
    try:
        return BOOKS[name]
    except KeyError:
        raise RailUnknown(name) from None


def open_rail(name: str) -> Rail:
    """The rail itself; raises RailUnknown where it is not on, FakeMoneyRefused for pretended money in public."""
    if name not in names_on():
        raise RailUnknown(name)
    rail: Rail = import_string(BOOKS[name].path)()
    return rail
