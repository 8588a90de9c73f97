"""Connections of the web process: those of the gateway, with the web's own bounds and its form of errors.

A request must keep coming, a byte a second does not do: its head within HEADER_SECONDS_MAX of the gateway's module, its
body by at least BODY_WINDOW_BYTES in each BODY_WINDOW_SECONDS. An answer must be read: SEND_SECONDS_MAX there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, ClassVar

from jobs.gateway.frontend.connections import HEADER_SECONDS_MAX, Caller, raw_answer
from marketplace.foundation.addresses.forwarded import counted_address

CONNECTIONS_MAX = 4_096  # of one process
CONNECTIONS_PER_ADDRESS_MAX = 1_024  # of one address, where no proxy stands in front
BODY_WINDOW_SECONDS = 10.0
BODY_WINDOW_BYTES = 16 * 1024  # that must come in each window; a body that is complete sooner needs no more
BODY_SECONDS_MAX = 1_200.0  # of the largest part of an upload, at the slowest line


class WebConnection(Caller):
    """One connection. `counts_addresses`: whether the other end is the visitor, and no proxy."""

    connections_max = CONNECTIONS_MAX
    counts_addresses = True
    addresses: ClassVar[Counter[str]] = Counter()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address = ""
        self._body_bytes = 0
        self._window_since: float | None = None
        self._window_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        if self.counts_addresses and isinstance(peer, tuple):
            address = counted_address(str(peer[0]))
            if self.addresses[address] >= CONNECTIONS_PER_ADDRESS_MAX:
                self.turn_away(transport, "Too many connections from your address; close some, and try again.")
                return
            self.addresses[address] += 1
            self._address = address
        super().connection_made(transport)

    def spare_connections(self) -> int:
        """None: agents' tunnels are the gateway's."""
        return 0

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address:
            self.addresses[self._address] -= 1
            if not self.addresses[self._address]:
                del self.addresses[self._address]
            self._address = ""
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._body_bytes, self._window_since = 0, None

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def is_late(self, now: float, reading_since: float) -> bool:
        """Whether the head should be here, or the body has stopped coming."""
        if self.is_in_head:
            return now - reading_since > HEADER_SECONDS_MAX
        if self._window_since is None:
            self._window_since, self._window_bytes = now, self._body_bytes
        if now - self._window_since > BODY_WINDOW_SECONDS:
            if self._body_bytes - self._window_bytes < BODY_WINDOW_BYTES:
                return True
            self._window_since, self._window_bytes = now, self._body_bytes
        return now - reading_since > BODY_SECONDS_MAX

    def raw_error(self, status: int, code: str, message: str, retry_after: int | None = None) -> bytes:
        """As every error of the API."""
        body = json.dumps({"code": code, "message": message, "details": {}}).encode()
        return raw_answer(status, code, body, retry_after)
