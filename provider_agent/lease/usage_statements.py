"""Signed token usage statements of a serving lease: cumulative, chained, stored before they are sent.

One is made every STATEMENT_SECONDS while there is something new, and one at the end. At most one is waiting for the
server's acknowledgement: it is sent again unchanged, also by a restarted agent, and only then is the next one made.
What was counted before a restart is in the last statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from uuid import UUID

from pydantic import BaseModel, ValidationError

from provider_agent import protocol
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Refused
from provider_agent.journal import LeaseEntry
from provider_agent.protocol.money.usage_statements import (
    ServeStatement,
    SignedStatement,
    sign_statement,
    statement_digest,
)
from provider_agent.system.atomic import write_atomically

STATEMENT_SECONDS = 30.0
POLL_SECONDS = 0.5
LAST_TRIES_MAX = 20  # tries to send the statement that is made when the lease ends
PAUSE_SECONDS = 3.0
STATEMENT_FILE = "statement.json"  # in the lease's folder, which the program does not see

log = logging.getLogger(__name__)


class Counted(Protocol):
    """What the tunnels counted of one lease since this agent was started."""

    @property
    def requests(self) -> int: ...
    @property
    def without_usage(self) -> int: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


class _Kept(BaseModel):
    """What the file holds."""

    signed: SignedStatement
    is_acknowledged: bool = False


class UsageStatementBook:
    """The token usage statements of one lease."""

    def __init__(self, receipt_key_hex: str, lease_id: UUID, domain: protocol.ReceiptDomain, path: Path) -> None:
        self._key, self._lease_id, self._domain, self._path = receipt_key_hex, lease_id, domain, path
        self._kept = _read(path)
        self._base = self._kept.signed.statement if self._kept else None  # of agents before this one

    @property
    def waiting(self) -> SignedStatement | None:
        """The one that the server has not acknowledged."""
        return self._kept.signed if self._kept and not self._kept.is_acknowledged else None

    def make(self, counted: Counted) -> bool:
        """Sign and store the next statement; False where there is nothing new, or one is still waiting."""
        last = self._kept.signed.statement if self._kept else None
        base, now = self._base, counted
        figures = {
            "requests": now.requests + (base.requests if base else 0),
            "without_usage": now.without_usage + (base.without_usage if base else 0),
            "input_tokens": now.input_tokens + (base.input_tokens if base else 0),
            "output_tokens": now.output_tokens + (base.output_tokens if base else 0),
        }
        if self.waiting or not any(figures[name] > (getattr(last, name) if last else 0) for name in figures):
            return False
        statement = ServeStatement(
            lease_id=self._lease_id,
            seq=last.seq + 1 if last else 1,
            prev_digest=statement_digest(last, self._domain) if last else protocol.ZERO_HASH,
            **figures,
        )
        self._keep(_Kept(signed=sign_statement(self._key, statement, self._domain)))
        return True

    def acknowledge(self, seq: int) -> None:
        """The server has everything up to here."""
        if self._kept and seq >= self._kept.signed.statement.seq:
            self._keep(self._kept.model_copy(update={"is_acknowledged": True}))

    def _keep(self, kept: _Kept) -> None:
        write_atomically(self._path, kept.model_dump_json().encode(), mode=0o600)
        self._kept = kept


def open_usage_statements(context: AgentContext, entry: LeaseEntry, folder: Path) -> UsageStatementBook:
    """The book of a lease's statements; once for each start of the agent, whose counts begin at zero there."""
    domain = entry.assignment.receipt_domain
    return UsageStatementBook(context.keys.receipt_hex, entry.lease_id, domain, folder / STATEMENT_FILE)


async def ship_usage_statements(
    context: AgentContext, entry: LeaseEntry, book: UsageStatementBook, counted: Callable[[], Counted]
) -> None:
    """Make and send statements until the lease has ended, then the last one. Returns when it was sent. It may be
    restarted with the same book, and nothing is counted twice.
    """
    while not entry.has_ended:
        await _send_next(context, entry, book, counted)
        for _ in range(int(STATEMENT_SECONDS / POLL_SECONDS)):
            if entry.has_ended:
                break
            await asyncio.sleep(POLL_SECONDS)
    for _ in range(LAST_TRIES_MAX):
        if not await _send_next(context, entry, book, counted):
            return
        await asyncio.sleep(PAUSE_SECONDS if book.waiting else 0)


async def _send_next(
    context: AgentContext, entry: LeaseEntry, book: UsageStatementBook, counted: Callable[[], Counted]
) -> bool:
    """Send what waits, else make the next and send it; whether there was anything."""
    try:
        if not book.waiting and not book.make(counted()):
            return False
        if (signed := book.waiting) is not None:
            book.acknowledge(
                await context.client.send_usage_statement(entry.lease_id, signed, fence=entry.assignment.fence)
            )
    except Refused as error:
        if isinstance(seq := error.details.get("seq"), int):
            with contextlib.suppress(OSError):  # it is acknowledged with the next answer
                book.acknowledge(seq)
        log.warning("A token usage statement was not accepted, and is kept: %s lease_id=%s", error, entry.lease_id)
    except (AgentError, OSError) as error:
        log.warning("A token usage statement could not be sent, and is kept: %s lease_id=%s", error, entry.lease_id)
    return True


def _read(path: Path) -> _Kept | None:
    try:
        return _Kept.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:  # the chain then begins anew, and the server refuses it
        log.error("The last token usage statement cannot be read: %s path=%s", error, path)
        return None
