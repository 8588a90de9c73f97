"""A third rail, both ways, that exists in tests alone: a bank in memory, and the two classes that speak to it.

It books into Stripe's kinds of account, which are free where Stripe is off; a rail with an account kind of its own adds
that kind to billing/account_kinds.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

from billing.account_kinds import AccountKind
from billing.models import Payout, TopUp
from billing.models.ledger import USD_ASSET_ID, Asset
from billing.money import MICROS_PER_CENT
from billing.rails.payments_in import (
    PaymentCall,
    PaymentFate,
    PaymentOutcome,
    Receipt,
    RequestedPayments,
    cost_reference,
)
from billing.rails.payouts import Fate, Movement, Outcome, PayoutRail
from billing.rails.registry import RailRow
from marketplace.foundation import clock

PAYMENT_COST: Final = 25 * MICROS_PER_CENT
PAYOUT_COST: Final = 10 * MICROS_PER_CENT
MIRROR: Final = AccountKind.STRIPE_BALANCE
ROW: Final = RailRow(
    payments=f"{__name__}.ToyPayments",
    payouts=f"{__name__}.ToyPayouts",
    mirror=MIRROR,
    cost=AccountKind.STRIPE_FEE_EXPENSE,
    asset_kind=Asset.Kind.FIAT,
    unit=MICROS_PER_CENT,
)


@dataclass
class Bank:
    """The outside: what moved there, by reference, and how often it was called to make something."""

    moved: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    asked: int = 0

    def move(self, ref: str, amount: int) -> None:
        self.moved.setdefault(ref, (amount, clock.now()))

    def customer_pays(self, payment: TopUp) -> None:
        """The customer pays on the bank's page; the bank keeps its price."""
        self.move(_in(payment), int(payment.amount))
        self.move(cost_reference(_in(payment)), -PAYMENT_COST)


BANK: Final = Bank()


class ToyPayments(RequestedPayments):
    name: ClassVar[str] = "toy"

    @classmethod
    def is_on(cls) -> bool:
        return True

    def open(self, payment: TopUp, call: PaymentCall) -> PaymentOutcome:
        BANK.asked += 1
        return PaymentOutcome(
            PaymentFate.UNDER_WAY, page_id=_in(payment), page_url=f"https://toy.example.org/{payment.pk}"
        )

    def find(self, payment: TopUp) -> PaymentOutcome:
        if _in(payment) not in BANK.moved:
            return PaymentOutcome(PaymentFate.UNDER_WAY)
        amount, _ = BANK.moved[_in(payment)]
        receipt = Receipt(payment.owner_id, USD_ASSET_ID, amount, _in(payment), payer="toy", cost=PAYMENT_COST)
        return PaymentOutcome(PaymentFate.PAID, receipt)


class ToyPayouts(PayoutRail):
    name: ClassVar[str] = "toy"

    def check_destination(self, destination: str) -> str:
        if not destination.startswith("toy:"):
            raise ValueError("The toy bank pays to toy:NAME.")
        return destination

    def submit(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        """Sent, and on its way until one looks again."""
        for payout in payouts:
            BANK.move(_out(payout), -int(payout.amount) - PAYOUT_COST)
        return {str(payout.pk): Outcome(Fate.UNDER_WAY, external_id=_out(payout)) for payout in payouts}

    def find(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        arrived = [payout for payout in payouts if _out(payout) in BANK.moved]
        absent = {str(payout.pk): Outcome(Fate.ABSENT) for payout in payouts}
        return absent | {str(one.pk): Outcome(Fate.CONFIRMED, _out(one), cost=PAYOUT_COST) for one in arrived}

    def positions(self) -> dict[tuple[AccountKind, int], int]:
        return {(MIRROR, USD_ASSET_ID): sum(amount for amount, _ in BANK.moved.values())}

    def movements(self, since: datetime) -> Iterator[Movement]:
        for ref, (amount, at) in BANK.moved.items():
            if at >= since:
                yield Movement(ref, MIRROR, USD_ASSET_ID, amount, at)


def _in(payment: TopUp) -> str:
    return f"toy_in_{payment.pk}"


def _out(payout: Payout) -> str:
    return f"toy_out_{payout.pk}"
