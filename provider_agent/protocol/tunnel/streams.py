"""One request within a tunnel: what waits to be sent, and what the other side may still send. No socket, no waiting.

Each direction has credit. It starts at WINDOW_FIRST; whoever reads gives back what it has read. A reader that keeps up
is given more, up to WINDOW_MAX, out of what all streams of this end share; it goes back when the stream is over. So a
reader that stands still holds up nobody else: every other stream has its WINDOW_FIRST, whatever the others hold.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from provider_agent.protocol.tunnel.frames import (
    DATA_BYTES_MAX,
    FRAME_HEAD_BYTES,
    WINDOW_FIRST,
    WINDOW_MAX,
    Broken,
    Code,
    Head,
    Kind,
    Reset,
    head_of,
    pack,
    pack_credit,
    pack_reset,
)

OUT_BYTES_HIGH: Final = 64 * 1024  # a writer of more than this waits for `writable`
OUT_BYTES_LOW: Final = 16 * 1024
RETURNED_AT: Final = 4  # credit is given back once a quarter of the window was read


class Receiver(Protocol):
    """Receives what arrives for a stream. None of these may wait, or raise."""

    def head(self, head: Head) -> None:
        """The response began (at the gateway)."""

    def data(self, chunk: bytes) -> None:
        """A piece of the body; `Stream.consumed` gives its credit back."""

    def end(self) -> None:
        """The body is complete."""

    def reset(self, reset: Reset) -> None:
        """The stream is over; nothing follows."""

    def writable(self) -> None:
        """What waits to be sent has become little again."""


class Connection(Protocol):
    """What a stream needs of the connection that carries it; mux.py has the one there is. None of these may wait."""

    @property
    def opens(self) -> bool:
        """Whether this end opens streams (the gateway's does)."""

    def send_control(self, frame: bytes) -> None:
        """Send a frame before those of all streams."""

    def queue(self, stream: Stream) -> None:
        """Give the stream a turn, after the others."""

    def grant_window(self, wanted: int) -> int:
        """Grant as much of `wanted` as the shared window has left; returns how much."""

    def remove(self, stream: Stream, granted: int) -> None:
        """Forget a stream that is over; `granted` goes back to the shared window."""


class Stream:
    """One request. Made by Mux alone."""

    __slots__ = (
        "_buffered",
        "_connection",
        "_credit",
        "_ending",
        "_first",
        "_has_begun",
        "_has_come",
        "_has_gone",
        "_out",
        "_unreturned",
        "_window",
        "is_in_turn",
        "is_over",
        "is_sent",
        "number",
        "out_bytes",
        "receiver",
    )

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self.number = number
        self.receiver: Receiver | None = None
        self._out: deque[bytes | memoryview] = deque()
        self.out_bytes = 0  # that wait to be sent
        self._credit = WINDOW_FIRST  # that the other side gave us
        self._first = b""  # OPEN or HEAD
        self._ending = False  # after what waits
        self._window = WINDOW_FIRST  # that we gave the other side, in all
        self._buffered = 0  # came, and was not consumed
        self._unreturned = 0  # was consumed, and not given back
        self.is_sent = False  # something of it has left
        self.is_in_turn = False
        self._has_begun = False  # its HEAD came
        self._has_come = False  # the other side's direction is complete
        self._has_gone = False  # ours is
        self.is_over = False

    # --- what we send

    def begin(self, kind: Kind, payload: bytes) -> None:
        """The first frame, before every other."""
        self._first += pack(kind, self.number, payload)
        self._queue()

    def write(self, chunk: bytes) -> None:
        """Send it when its turn and the credit come."""
        if not chunk or self.is_over:
            return
        self._out.append(chunk)
        self.out_bytes += len(chunk)
        self._queue()

    def finish(self) -> None:
        """Nothing follows what was written."""
        if not self.is_over:
            self._ending = True
            self._queue()

    def reset(self, code: Code, reason: str) -> None:
        """Drop what waits, and send a RESET to the other side; harmless to repeat."""
        if self.is_over:
            return
        was_opened_here_unsent = bool(self._first) and not self.is_sent and self._connection.opens
        self.close()
        if not was_opened_here_unsent:
            self._connection.send_control(pack(Kind.RESET, self.number, pack_reset(Reset(code, reason))))

    @property
    def can_send(self) -> bool:
        """Whether a turn would send something."""
        if self._first:
            return True
        return self._credit > 0 if self._out else self._ending

    def take_turn(self, parts: list[bytes | memoryview]) -> int:
        """Add its first frame, at most one DATA, and its END; returns how many bytes that is."""
        size = 0
        if self._first:
            parts.append(self._first)
            size += len(self._first)
            self._first = b""
        self.is_sent = True
        if self._out and self._credit > 0:
            size += self._take_data(parts)
        if self._ending and not self._out:
            parts.append(head_of(Kind.END, self.number, 0))
            size += FRAME_HEAD_BYTES
            self._ending = False
            self._has_gone = True
            if self._has_come:
                self.close()
        return size

    def _take_data(self, parts: list[bytes | memoryview]) -> int:
        limit = min(self._credit, DATA_BYTES_MAX)
        at = len(parts)
        parts.append(b"")
        taken = 0
        out = self._out
        while out and taken < limit:
            chunk = out.popleft()
            room = limit - taken
            if len(chunk) > room:
                view = memoryview(chunk)
                out.appendleft(view[room:])
                chunk = view[:room]
            parts.append(chunk)
            taken += len(chunk)
        parts[at] = head_of(Kind.DATA, self.number, taken)
        self._credit -= taken
        before, self.out_bytes = self.out_bytes, self.out_bytes - taken
        if before > OUT_BYTES_LOW >= self.out_bytes and self.receiver is not None:
            self.receiver.writable()
        return taken + FRAME_HEAD_BYTES

    def add_credit(self, credit: int) -> None:
        """The other side has read so much. Raises Broken."""
        self._credit += credit
        if self._credit > WINDOW_MAX:
            raise Broken("more credit than a window can have")
        self._queue()

    def _queue(self) -> None:
        if not self.is_in_turn and not self.is_over and self.can_send:
            self._connection.queue(self)

    # --- what we are sent

    @property
    def _may_come(self) -> bool:
        return self._has_begun or not self._connection.opens

    def came(self, chunk: bytes) -> None:
        """A DATA frame. Raises Broken where the credit does not cover it."""
        self._buffered += len(chunk)
        if self._buffered + self._unreturned > self._window or self._has_come or not self._may_come:
            raise Broken("more data than there was credit for")
        if self.receiver is not None:
            self.receiver.data(chunk)

    def headed(self, head: Head) -> None:
        """A HEAD frame. Raises Broken."""
        if self._has_begun or self._has_come or not self._connection.opens:
            raise Broken("a HEAD that has no place here")
        self._has_begun = True
        if self.receiver is not None:
            self.receiver.head(head)

    def ended(self) -> None:
        """An END frame. Raises Broken."""
        if self._has_come or (self._connection.opens and not self._has_begun):
            raise Broken("an END that has no place here")
        self._has_come = True
        if self.receiver is not None:
            self.receiver.end()
        if self._has_gone:
            self.close()
        elif self._connection.opens:  # answered before all of it was sent: the rest is not needed
            self.reset(Code.CANCELLED, "it was answered before all of it was sent")

    def was_reset(self, reset: Reset) -> None:
        """A RESET frame."""
        receiver = self.receiver
        self.close()
        if receiver is not None:
            receiver.reset(reset)

    def consumed(self, size: int) -> None:
        """So much was read, and the other side may send as much again; more, where the reader keeps up."""
        self._buffered -= size
        self._unreturned += size
        if self.is_over or self._has_come or self._unreturned * RETURNED_AT < self._window:
            return
        given, self._unreturned = self._unreturned, 0
        if self._buffered * 4 <= self._window:
            more = self._connection.grant_window(min(self._window, WINDOW_MAX - self._window))
            self._window += more
            given += more
        self._connection.send_control(pack(Kind.WINDOW, self.number, pack_credit(given)))

    def close(self) -> None:
        """It is over: forget what waits, give back what it was granted."""
        if self.is_over:
            return
        self.is_over = True
        self._out.clear()
        self.out_bytes = 0
        self._first, self._ending = b"", False
        self._connection.remove(self, self._window - WINDOW_FIRST)
