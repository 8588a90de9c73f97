"""Alice buys, Bob provides, Mallory lies: what billing's tests stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Barrier
from typing import Any, TypeVar
from uuid import UUID, uuid4

from django.db import connection
from eth_account import Account as EthereumAccount

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.charging.metering import LeaseTerms
from provider_agent.protocol import (
    ZERO_HASH,
    SignedReceipt,
    UsageReceipt,
    charge,
    receipt_digest,
    sign_receipt,
)

T = TypeVar("T")
DOLLAR = 1_000_000


def fund(owner_id: UUID, usd_micros: int = 10 * DOLLAR) -> UUID:
    """Give somebody money; returns the owner."""
    deposits.credit(owner_id, usd_micros, reference=f"wire {uuid4()}", actor="operator@example.org")
    return owner_id


def available(owner_id: UUID) -> int:
    return ledger.balance(owner_id, AccountKind.CUSTOMER_AVAILABLE)


def held(owner_id: UUID) -> int:
    return ledger.balance(owner_id, AccountKind.JOB_HOLD)


def assert_ledger_is_true() -> None:
    report = ledger.verify()
    assert report.problems == []
    assert set(ledger.trial_balance().values()) <= {0}


def race(verbs: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Call all at once, each on a connection of its own; what each returned or raised."""
    gate = Barrier(min(len(verbs), 16))

    def enter(verb: Callable[[], T]) -> T | Exception:
        try:
            if gate.parties == len(verbs):
                gate.wait(timeout=20)
            return verb()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=gate.parties) as pool:
        return list(pool.map(enter, verbs))


@contextmanager
def past_the_triggers(table: str) -> Iterator[Any]:
    """What only a superuser can do: write behind the back of the ledger's own rules."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield cursor
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


@dataclass
class Meter:
    """The receipts of one lease as Bob's agent signs them."""

    rate: int = 3_600_000  # one micro-USD a millisecond
    cap: int = 10 * DOLLAR
    job_id: UUID = field(default_factory=uuid4)
    lease_id: UUID = field(default_factory=uuid4)
    key: str = field(default_factory=lambda: "0x" + EthereumAccount.create().key.hex().removeprefix("0x"))
    made: list[SignedReceipt] = field(default_factory=list)

    @property
    def terms(self) -> LeaseTerms:
        address = EthereumAccount.from_key(self.key).address
        return LeaseTerms(self.job_id, self.lease_id, address, self.rate, self.cap)

    def read(self, billable_ms: int, **changes: Any) -> SignedReceipt:
        """The next receipt of the chain."""
        self.made.append(self.sign(billable_ms, **changes))
        return self.made[-1]

    def sign(self, billable_ms: int, *, key: str | None = None, **changes: Any) -> SignedReceipt:
        """A receipt as the next would be, with `changes`; it does not enter the chain."""
        fields: dict[str, Any] = {
            "job_id": self.job_id,
            "lease_id": self.lease_id,
            "seq": len(self.made) + 1,
            "billable_ms": billable_ms,
            "cumulative_amount": charge(self.rate, billable_ms),
            "prev_digest": receipt_digest(self.made[-1].receipt) if self.made else ZERO_HASH,
        }
        return sign_receipt(key or self.key, UsageReceipt(**(fields | changes)))
