"""All streams of one connection. `feed` takes a message that came, `take` gives the next one to send: no socket here.

Streams take turns: one DATA frame each, and what is not a stream's goes first. So a token never waits for more than one
frame of each large body, however large. Frames of one moment share a message, for a message costs more than its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol
from uuid import UUID

from provider_agent.protocol.tunnel import frames
from provider_agent.protocol.tunnel.frames import (
    MESSAGE_BYTES_MAX,
    STREAM_NUMBER_MAX,
    STREAMS_PER_TUNNEL_MAX,
    WINDOW_SHARED,
    Broken,
    Code,
    Kind,
    Open,
    Reset,
)
from provider_agent.protocol.tunnel.streams import Stream

CONTROL_FRAMES_MAX: Final = 4 * STREAMS_PER_TUNNEL_MAX  # that wait; beyond it the other end does not read
PING_BYTES: Final = 8


class Events(Protocol):
    """Receives what is not a stream's. None of these may wait; `Broken` may be raised."""

    def opened(self, stream: Stream, request: Open) -> None:
        """At the agent: a request came; it gives the stream a receiver."""

    def announced(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        """At the gateway: a replica is ready."""

    def withdrawn(self, lease_id: UUID) -> None:
        """At the gateway: a replica takes no new requests."""

    def ponged(self, payload: bytes) -> None:
        """The other end is alive."""


class Mux:
    """One end. `opens`: it is the gateway's. `wake` is called when there is something to take."""

    def __init__(self, events: Events, wake: Callable[[], None], *, opens: bool) -> None:
        self._events = events
        self._wake = wake
        self.opens = opens
        self.streams: dict[int, Stream] = {}
        self._last = 0  # number of the newest stream
        self._turns: deque[Stream] = deque()
        self._control: deque[bytes] = deque()
        self._pong = b""
        self._shared = WINDOW_SHARED
        self._is_stuck = False

    # --- sending

    def open(self, request: Open) -> Stream:
        """A new stream whose OPEN waits. ValueError if there are too many streams, or it cannot be encoded."""
        if len(self.streams) >= STREAMS_PER_TUNNEL_MAX or self.is_spent:
            raise ValueError("the tunnel has no room for another request")
        payload = frames.pack_open(request)
        stream = self._add(self._last + 1)
        stream.begin(Kind.OPEN, payload)
        return stream

    @property
    def is_spent(self) -> bool:
        """Every number was used: only another connection has more."""
        return self._last >= STREAM_NUMBER_MAX

    def announce(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        """Announce a replica that is ready. Raises ValueError where the frame would be too long."""
        self.send_control(frames.pack(Kind.ANNOUNCE, 0, frames.pack_announce(lease_id, ready)))

    def withdraw(self, lease_id: UUID) -> None:
        """Announce that a replica takes no new requests."""
        self.send_control(frames.pack(Kind.WITHDRAW, 0, lease_id.bytes))

    def ping(self, payload: bytes) -> None:
        """Ask for a sign of life: PING_BYTES that come back."""
        self.send_control(frames.pack(Kind.PING, 0, payload))

    def take(self) -> bytes:
        """The next message; empty when nothing can be sent now."""
        parts: list[bytes | memoryview] = []
        size = 0
        if self._pong:
            parts.append(frames.pack(Kind.PONG, 0, self._pong))
            self._pong = b""
        control = self._control
        while control and size < MESSAGE_BYTES_MAX:
            frame = control.popleft()
            parts.append(frame)
            size += len(frame)
        turns = self._turns
        while turns and size < MESSAGE_BYTES_MAX:
            stream = turns.popleft()
            stream.is_in_turn = False
            if stream.is_over:
                continue
            size += stream.take_turn(parts)
            if not stream.is_over and not stream.is_in_turn and stream.can_send:
                self.queue(stream)
        return b"".join(parts)

    # --- receiving

    def feed(self, message: bytes) -> None:
        """Pass on to each stream what arrived for it. Raises Broken."""
        if self._is_stuck:
            raise Broken("the other end does not read")
        for kind, number, payload in frames.unpack(message):
            if kind == Kind.DATA:
                if (stream := self._find(number)) is not None:
                    stream.came(payload)
            else:
                self._take_in(kind, number, payload)

    def lose(self, why: str) -> None:
        """The connection has ended: every stream is reset here, at once."""
        for stream in list(self.streams.values()):
            code = Code.BROKEN if stream.is_sent or not self.opens else Code.REFUSED
            receiver = stream.receiver
            stream.close()
            if receiver is not None:
                receiver.reset(Reset(code, why))
        self._control.clear()
        self._turns.clear()

    # --- for the streams

    def send_control(self, frame: bytes) -> None:
        """Send it before the streams' turns; if the other end reads nothing, the next `feed` raises Broken."""
        if len(self._control) >= CONTROL_FRAMES_MAX:
            self._is_stuck = True
            return
        self._control.append(frame)
        self._wake()

    def queue(self, stream: Stream) -> None:
        """Give it a turn, after the others."""
        stream.is_in_turn = True
        self._turns.append(stream)
        self._wake()

    def grant_window(self, wanted: int) -> int:
        """As much more of a window as there is to share."""
        granted = min(wanted, self._shared)
        self._shared -= granted
        return granted

    def remove(self, stream: Stream, granted: int) -> None:
        """It is over."""
        self.streams.pop(stream.number, None)
        self._shared += granted

    # --- below

    def _take_in(self, kind: int, number: int, payload: bytes) -> None:
        if kind in _OF_A_STREAM:
            if (stream := self._find(number)) is not None:
                _OF_A_STREAM[kind](stream, payload)
        elif kind in {Kind.PING, Kind.PONG}:
            self._take_ping(kind, payload)
        elif kind == Kind.OPEN and not self.opens:
            self._take_open(number, frames.unpack_open(payload))
        elif kind == Kind.ANNOUNCE and self.opens:
            self._events.announced(*frames.unpack_announce(payload))
        elif kind == Kind.WITHDRAW and self.opens:
            self._events.withdrawn(frames.unpack_lease(payload))
        else:
            raise Broken(f"a frame of kind {kind}, which has no place here")

    def _take_open(self, number: int, request: Open) -> None:
        if number <= self._last or len(self.streams) >= STREAMS_PER_TUNNEL_MAX:
            raise Broken("an OPEN with a number that was used, or one too many")
        self._events.opened(self._add(number), request)

    def _take_ping(self, kind: int, payload: bytes) -> None:
        if len(payload) != PING_BYTES:
            raise Broken("a PING of a wrong length")
        if kind == Kind.PONG:
            self._events.ponged(payload)
        else:
            self._pong = payload  # of several, the newest alone is answered
            self._wake()

    def _add(self, number: int) -> Stream:
        self._last = number
        stream = self.streams[number] = Stream(self, number)
        return stream

    def _find(self, number: int) -> Stream | None:
        """None for one that is over: what was under way to it is no fault."""
        stream = self.streams.get(number)
        if stream is None and not 0 < number <= self._last:
            raise Broken("a frame for a stream that never was")
        return stream


_OF_A_STREAM: Final[dict[int, Callable[[Stream, bytes], None]]] = {
    Kind.HEAD: lambda stream, payload: stream.headed(frames.unpack_head(payload)),
    Kind.WINDOW: lambda stream, payload: stream.add_credit(frames.unpack_credit(payload)),
    Kind.END: lambda stream, _: stream.ended(),
    Kind.RESET: lambda stream, payload: stream.was_reset(frames.unpack_reset(payload)),
}
