"""What a rail must be able to do with money that comes in.

Money comes in by two ways, and a rail implements the one that it has:

    RequestedPayments   a customer asks for a top-up and pays on the rail's page, or with a card that the rail keeps;
                        then the rail is asked what became of it. Any call may be repeated: the payment's id makes it
                        harmless.
    ObservedPayments    nobody asks: the money arrives, and whoever follows the rail hands its event to `receipt_of`.

Either way what arrived is a Receipt, and the ledger credits it once by the rail's name and the receipt's reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar
from uuid import UUID

from billing.models import TopUp

Arrived = TypeVar("Arrived")


class PaymentFate(StrEnum):
    """What became of a payment: not known yet, money is there, refused, or not paid in time."""

    UNDER_WAY = "under_way"
    PAID = "paid"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Receipt:
    """Money that arrived, in base units of its asset. `reference` is unique within the rail; it is credited once."""

    owner_id: UUID
    asset_id: int
    amount: int  # all that was paid, before the rail's price and a tax on top
    reference: str
    payer: str  # for the audit trail: who paid, or who reported it
    cost: int = 0  # the rail's price, paid by us


@dataclass(frozen=True)
class PaymentOutcome:
    """What the rail reports of one payment; `receipt` is there exactly when its fate is PAID."""

    fate: PaymentFate
    receipt: Receipt | None = None
    page_id: str = ""  # of the page on which the customer pays
    page_url: str = ""
    payment_id: str = ""
    charge_id: str = ""
    reason: str = ""  # a short code: why it failed
    message: str = ""  # the same in words for the customer


@dataclass(frozen=True)
class PaymentCall:
    """The outbox message by which a payment is opened: `id` marks what is created, so that a repeat can find it."""

    id: UUID
    created_at: datetime
    attempts: int
    save_card: bool = False  # keep the card for later payments, where the rail can


class PaymentRail(ABC):
    """One way in for money."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def is_on(cls) -> bool:
        """Whether this marketplace takes money by this rail; raises FakeMoneyRefused for pretended money in public."""


class RequestedPayments(PaymentRail):
    """A rail that is asked to take a payment; micro-USD in whole cents."""

    methods: ClassVar[frozenset[str]] = frozenset({TopUp.Method.CHECKOUT})
    can_refund: ClassVar[bool] = False  # a part of a payment can be sent back to where it came from

    def page_url(self, payment: TopUp) -> str:
        """Where the customer pays, if that is known without a call: then `open` is not called. Else empty."""
        return ""

    @abstractmethod
    def open(self, payment: TopUp, call: PaymentCall) -> PaymentOutcome:
        """Have the page made, or the card charged (outside of any transaction), once; raises RailError."""

    @abstractmethod
    def find(self, payment: TopUp) -> PaymentOutcome:
        """What became of it (outside of any transaction); raises RailError."""

    def claim(self, receipt: Receipt, group_id: UUID) -> bool:
        """Whether the credit is this caller's to post; called in its transaction. A rail whose balance is booked by
        several writers keeps a list of what was booked, and answers no to the second."""
        return True


class ObservedPayments(PaymentRail, Generic[Arrived]):
    """A rail whose money arrives unasked."""

    @abstractmethod
    def receipt_of(self, event: Arrived) -> Receipt:
        """What the event reports as money that arrived."""


def cost_reference(reference: str) -> str:
    """What the transfer of a rail's price is called, beside the transfer of the amount."""
    return f"{reference}:fee"
