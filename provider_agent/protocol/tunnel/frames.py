"""Frames: one kind, one stream, at most 65,535 bytes; a message of the WebSocket is whole frames, one after another.

    kind  stream  length  payload
    u8    u32     u16     length bytes       (big endian)

    OPEN      gateway -> agent   lease (16 bytes), then "METHOD path" and a line for each header
    HEAD      agent -> gateway   status, and a line for each header
    DATA      both               bytes of the body; costs its length of the stream's credit
    END       both               this direction is complete
    RESET     both               a code, and words for people: the stream is over, in both directions
    WINDOW    both               u32: so much more credit for the other side
    PING/PONG both               8 bytes that come back
    ANNOUNCE  agent -> gateway   lease, then JSON: the runtime's `ready` event
    WITHDRAW  agent -> gateway   lease: no new request for it; those that are open go on

Version 1. What is malformed, or larger than it may be, ends the whole connection: see `Broken`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

VERSION: Final = 1
PATH: Final = "/tunnel/v1"

FRAME_BYTES_MAX: Final = 65_535  # of a payload
DATA_BYTES_MAX: Final = 16 * 1024  # sent in one DATA frame: what another stream waits for at most, a stream
MESSAGE_BYTES_MAX: Final = 64 * 1024  # a message is closed once it has so much
MESSAGE_BYTES_READ_MAX: Final = 2 * (MESSAGE_BYTES_MAX + FRAME_BYTES_MAX)
HEADER_BYTES_MAX: Final = 32 * 1024  # of an OPEN or a HEAD
HEADERS_MAX: Final = 100
READY_BYTES_MAX: Final = 32 * 1024
REASON_BYTES_MAX: Final = 300
LEASES_PER_TUNNEL_MAX: Final = 256
STREAMS_PER_TUNNEL_MAX: Final = 4096
STREAM_NUMBER_MAX: Final = 2**32 - 1

WINDOW_FIRST: Final = 32 * 1024  # credit that every stream has from its beginning, each way
WINDOW_MAX: Final = 512 * 1024  # what one whose reader keeps up may come to; more would only wait in a router's queue
WINDOW_SHARED: Final = 16 * 1024 * 1024  # of one end: all that its streams have beyond WINDOW_FIRST

HEARTBEAT_SECONDS: Final = 5.0
MISSES_UNTIL_DEAD: Final = 3

Header = tuple[bytes, bytes]
# In an OPEN: the gateway asks for itself (a probe, a check of another replica's answer), and nobody uses the replica.
# Only the gateway writes it: it passes on no header of a caller. The agent counts such a request apart, and hides the
# header from the engine.
OWN_REQUEST: Final[Header] = (b"x-souk-own-request", b"1")
_FRAME = struct.Struct(">BIH")
_CREDIT = struct.Struct(">I")
_FIRST_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*)")
FRAME_HEAD_BYTES: Final = _FRAME.size


class Kind(IntEnum):
    """What a frame is."""

    OPEN = 1
    HEAD = 2
    DATA = 3
    END = 4
    RESET = 5
    WINDOW = 6
    PING = 7
    PONG = 8
    ANNOUNCE = 9
    WITHDRAW = 10


class Code(IntEnum):
    """Why a stream was reset."""

    REFUSED = 1  # the engine has not seen it: another replica may be asked
    BROKEN = 2  # the engine, or the way to it, broke off
    TIMEOUT = 3
    CANCELLED = 4  # the caller does not need it any more


class Broken(Exception):
    """The other end does not keep to the protocol; the connection is closed, for nothing after this can be trusted."""


class Open(NamedTuple):
    """A request's beginning."""

    lease_id: UUID
    method: str
    path: str
    headers: Sequence[Header]


class Head(NamedTuple):
    """A response's beginning."""

    status: int
    headers: Sequence[Header]


class Reset(NamedTuple):
    """A stream's end before its time."""

    code: Code
    reason: str

    @property
    def is_sent(self) -> bool:
        """Whether the engine may have begun to work."""
        return self.code is not Code.REFUSED


def pack(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    """One frame. ValueError where the payload is too long."""
    if len(payload) > FRAME_BYTES_MAX:
        raise ValueError(f"{kind.name} of {len(payload)} bytes")
    return _FRAME.pack(kind, stream, len(payload)) + payload


def head_of(kind: Kind, stream: int, size: int) -> bytes:
    """A frame's head alone, for a payload that is sent beside it."""
    return _FRAME.pack(kind, stream, size)


def unpack(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Kind, stream and payload of every frame of a message. Raises Broken."""
    at, end = 0, len(message)
    if end > MESSAGE_BYTES_READ_MAX:
        raise Broken("a message is too long")
    while at < end:
        if end - at < FRAME_HEAD_BYTES:
            raise Broken("a message ends within a frame")
        kind, stream, size = _FRAME.unpack_from(message, at)
        at += FRAME_HEAD_BYTES
        if end - at < size:
            raise Broken("a message ends within a frame")
        yield kind, stream, message[at : at + size]
        at += size


def pack_open(request: Open) -> bytes:
    """An OPEN's payload. ValueError if the request cannot be encoded as one."""
    first = f"{request.method} {request.path}".encode("ascii")
    if not _FIRST_LINE.fullmatch(first):
        raise ValueError("a method or a path with characters that have no place in it")
    return request.lease_id.bytes + _limited(first + pack_headers(request.headers))


def unpack_open(payload: bytes) -> Open:
    """Raises Broken."""
    if not 16 < len(payload) <= 16 + HEADER_BYTES_MAX:
        raise Broken("an OPEN of a wrong length")
    first, _, rest = payload[16:].partition(b"\n")
    line = _FIRST_LINE.fullmatch(first)
    if line is None:
        raise Broken("an OPEN whose method or path cannot be sent on")
    method, path = line.group(1).decode(), line.group(2).decode()
    return Open(UUID(bytes=payload[:16]), method, path, unpack_headers(rest))


def pack_head(head: Head) -> bytes:
    """A HEAD's payload. ValueError if the head cannot be encoded as one."""
    return _limited(b"%d" % head.status + pack_headers(head.headers))


def unpack_head(payload: bytes) -> Head:
    """Raises Broken."""
    first, _, rest = payload.partition(b"\n")
    if len(payload) > HEADER_BYTES_MAX or len(first) != 3 or not first.isdigit() or not 200 <= int(first) <= 599:
        raise Broken("a HEAD without a status")
    return Head(int(first), unpack_headers(rest))


def pack_headers(headers: Sequence[Header]) -> bytes:
    """A line each, with a line feed before it. ValueError where one cannot be a header."""
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"{len(headers)} headers")
    packed = b"".join([b"\n%b:%b" % pair for pair in headers])
    if packed.count(b"\n") != len(headers) or b"\r" in packed or b"\0" in packed:
        raise ValueError("a header with a line of its own in it")
    for name, _ in headers:
        if not name or b":" in name:
            raise ValueError("a header without a name")
    return packed


def unpack_headers(packed: bytes) -> list[Header]:
    """Raises Broken."""
    if not packed:
        return []
    if b"\r" in packed or b"\0" in packed:
        raise Broken("a header with a line of its own in it")
    lines = packed.split(b"\n")
    if len(lines) > HEADERS_MAX:
        raise Broken("too many headers")
    headers: list[Header] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not name or not colon:
            raise Broken("a header without a name")
        headers.append((name, value))
    return headers


def pack_reset(reset: Reset) -> bytes:
    """A RESET's payload; the words are cut where they are too many."""
    return bytes([reset.code]) + reset.reason.encode()[:REASON_BYTES_MAX]


def unpack_reset(payload: bytes) -> Reset:
    """A code that only a newer end knows is BROKEN. Raises Broken."""
    if not 1 <= len(payload) <= 1 + REASON_BYTES_MAX:
        raise Broken("a RESET of a wrong length")
    code = Code(payload[0]) if payload[0] in Code.__members__.values() else Code.BROKEN
    return Reset(code, payload[1:].decode(errors="replace"))


def pack_credit(credit: int) -> bytes:
    """A WINDOW's payload."""
    return _CREDIT.pack(credit)


def unpack_credit(payload: bytes) -> int:
    """Raises Broken."""
    if len(payload) != _CREDIT.size:
        raise Broken("a WINDOW of a wrong length")
    (credit,) = _CREDIT.unpack(payload)
    return int(credit)


def pack_announce(lease_id: UUID, ready: dict[str, Any]) -> bytes:
    """An ANNOUNCE's payload. ValueError where the event is too long or not JSON."""
    data = json.dumps(ready, separators=(",", ":"), allow_nan=False).encode()
    if len(data) > READY_BYTES_MAX:
        raise ValueError(f"a `ready` event of {len(data)} bytes")
    return lease_id.bytes + data


def unpack_announce(payload: bytes) -> tuple[UUID, dict[str, Any]]:
    """Raises Broken."""
    if not 16 < len(payload) <= 16 + READY_BYTES_MAX:
        raise Broken("an ANNOUNCE of a wrong length")
    try:
        ready = json.loads(payload[16:])
    except (ValueError, RecursionError) as error:
        raise Broken("an ANNOUNCE that is not JSON") from error
    if not isinstance(ready, dict):
        raise Broken("an ANNOUNCE that is not an object")
    return UUID(bytes=payload[:16]), ready


def unpack_lease(payload: bytes) -> UUID:
    """Raises Broken."""
    if len(payload) != 16:
        raise Broken("a WITHDRAW of a wrong length")
    return UUID(bytes=payload)


def _limited(packed: bytes) -> bytes:
    if len(packed) > HEADER_BYTES_MAX:
        raise ValueError(f"a head of {len(packed)} bytes")
    return packed
