"""What a rail must be able to do with payouts, and what it reports of the outside for reconciliation.

A payout is reserved in the ledger first (a pending transfer), then submitted here, then found confirmed or failed. Each
rail may be asked any of this any number of times: a payout's id is its idempotency key, and where an outcome is
unknown `find` looks it up before anything is sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final

from billing.account_kinds import AccountKind
from billing.models import Payout
from billing.states import BankState


class Fate(StrEnum):
    """What became of a payout: unknown to the rail, on its way, arrived, refused, or sent back after it had arrived."""

    ABSENT = "absent"
    UNDER_WAY = "under_way"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    RETURNED = "returned"


EVENT_STORED: Final = "an event that is stored and not processed yet"  # an answer of `explain`


@dataclass(frozen=True)
class BankReport:
    """Where a payout is on its way from the provider's account at the rail to its bank."""

    state: BankState
    bank_payout_id: str = ""
    message: str = ""  # why it is not at the bank, in words for the provider
    number: int = 0  # of the try that was refused: one that two workers made is counted once


@dataclass(frozen=True)
class Outcome:
    """The rail's report of one payout; `cost` in base units of its asset is the rail's own price, paid by us."""

    fate: Fate
    external_id: str = ""
    message: str = ""  # why it failed, in words for the provider
    cost: int = 0
    bank: BankReport | None = None  # None: the rail has no such way, or nothing new is known of it


@dataclass(frozen=True)
class Movement:
    """One change of what we have outside; `amount` is signed, in base units. `ref` is unique within the rail."""

    ref: str
    kind: AccountKind  # the mirror it belongs to
    asset_id: int
    amount: int
    at: datetime


class PayoutRail(ABC):
    """One way out for payouts, and one part of the outside to reconcile with."""

    name: ClassVar[str]

    @abstractmethod
    def check_destination(self, destination: str) -> str:
        """The destination as it is stored; raises ValueError, in words for the provider, for one that cannot be."""

    @abstractmethod
    def submit(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        """Send these (outside of any transaction) and return by id what is known of each; raises RailError."""

    @abstractmethod
    def find(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        """What became of these, by id; raises RailError. ABSENT: it was never received, and may be sent again."""

    @abstractmethod
    def positions(self) -> dict[tuple[AccountKind, int], int]:
        """What we have outside right now, by mirror and asset; raises RailError."""

    @abstractmethod
    def movements(self, since: datetime) -> Iterator[Movement]:
        """Every change since then, oldest first; raises RailError."""

    def explain(self, ref: str) -> str:
        """Why the ledger may not have yet the movement of this reference; empty without a reason."""
        return ""

    def payout_id_of(self, ref: str) -> str:
        """The part of a movement's reference that is a payout's id, if one is in it."""
        return ref.removeprefix("payout:")
