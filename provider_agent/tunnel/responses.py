"""HTTP/1.1 responses as they come from an engine, which may be anybody's program: every length has a limit.

Standard library only, on purpose: h11, which httpx brings, takes some 20 µs a piece of the body; a token is a piece.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from provider_agent.protocol.tunnel.frames import HEADER_BYTES_MAX, HEADERS_MAX, Header

CHUNK_LINE_BYTES_MAX: Final = 256
TRAILER_BYTES_MAX: Final = 4096
INTERIM_MAX: Final = 4  # responses of 1xx before the real one
HEAD_ROOM_BYTES: Final = 1024  # of HEADER_BYTES_MAX, for what a HEAD frame adds

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_LENGTH = re.compile(rb"\d{1,15}")
HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


class BadResponse(Exception):
    """The engine sent something that is not HTTP/1.1, or too much of it."""


class Sink(Protocol):
    """Receives the parts of a response."""

    def on_head(self, status: int, headers: Sequence[Header]) -> None:
        """Names in lower case, without those that concern this connection alone."""

    def on_data(self, chunk: bytes) -> None:
        """A piece of the body."""

    def on_end(self) -> None:
        """The body is complete."""


class ResponseReader:
    """One response. `feed` what came, `close` at the end of the connection."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._data = b""  # came, and is not read
        self._at = 0  # up to here it is
        self._pieces: list[bytes] = []  # of the body: what arrived together is passed on together
        self._step = self._read_head
        self._left = 0  # of the body, or of a chunk
        self._interim = 0
        self.is_over = False
        self.can_go_on = False  # the connection may carry another request

    def feed(self, data: bytes) -> None:
        """Raises BadResponse, once everything before the error was passed on."""
        self._data = self._data + data if self._data else data
        self._at = 0
        try:
            while self._at < len(self._data) and not self.is_over and self._step():
                pass
        finally:
            self._pass_on()
        if self.is_over and self._at < len(self._data):
            raise BadResponse("more than one response")
        self._data = self._data[self._at :]

    def close(self) -> None:
        """The engine closed the connection. Raises BadResponse where the response was not complete."""
        if self._step == self._read_until_close:
            self._end()
        elif not self.is_over:
            raise BadResponse("the engine closed the connection within its response")

    # --- steps: each reads on from `_at`; False where more must come first

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n", self._at, self._at + HEADER_BYTES_MAX)
        if end < 0:
            if len(self._data) - self._at >= HEADER_BYTES_MAX - HEAD_ROOM_BYTES:
                raise BadResponse("headers without an end")
            return False
        first, *lines = self._data[self._at : end].split(b"\r\n")
        status = _STATUS.fullmatch(first)
        if status is None:
            raise BadResponse("what came is not HTTP")
        if end - self._at > HEADER_BYTES_MAX - HEAD_ROOM_BYTES or len(lines) > HEADERS_MAX:
            raise BadResponse("too many headers")
        self._at = end + 4
        number = int(status.group(2))
        if number < 200:
            self._interim += 1
            if number == 101 or self._interim > INTERIM_MAX:
                raise BadResponse(f"a response of status {number}")
        else:
            self._begin(number, [_header(line) for line in lines], is_newer=status.group(1) == b"1")
        return True

    def _begin(self, status: int, headers: list[Header], *, is_newer: bool) -> None:
        if status > 599:
            raise BadResponse(f"a response of status {status}")
        connection = b",".join(value.lower() for name, value in headers if name == b"connection")
        codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
        lengths = {value for name, value in headers if name == b"content-length"}
        if len(lengths) > 1 or (lengths and codings) or codings not in ([], [b"chunked"]):
            raise BadResponse("a response whose length is not clear")
        length = lengths.pop() if lengths else None
        if length is not None and not _LENGTH.fullmatch(length):
            raise BadResponse("a response whose length is not clear")
        self.can_go_on = is_newer and b"close" not in connection
        self._sink.on_head(status, [pair for pair in headers if pair[0] not in HOP_BY_HOP])
        if status in {204, 304} or (length is not None and int(length) == 0):
            self._end()
        elif codings:
            self._step = self._read_size
        elif length is not None:
            self._left = int(length)
            self._step = self._read_body
        else:
            self.can_go_on = False
            self._step = self._read_until_close

    def _read_body(self) -> bool:
        self._take(self._left)
        if not self._left:
            self._end()
        return True

    def _read_until_close(self) -> bool:
        self._left = len(self._data)
        self._take(self._left)
        return True

    def _read_size(self) -> bool:
        end = self._data.find(b"\r\n", self._at, self._at + CHUNK_LINE_BYTES_MAX)
        if end < 0:
            if len(self._data) - self._at >= CHUNK_LINE_BYTES_MAX:
                raise BadResponse("the size of a chunk without an end")
            return False
        size = _SIZE.fullmatch(self._data, self._at, end)
        if size is None:
            raise BadResponse("the size of a chunk is not a number")
        self._left = int(size.group(1), 16)
        self._step = self._read_chunk if self._left else self._read_trailer
        self._at = end + 2
        return True

    def _read_chunk(self) -> bool:
        self._take(self._left)
        if not self._left:
            self._step = self._read_chunk_end
        return True

    def _read_chunk_end(self) -> bool:
        if len(self._data) - self._at < 2:
            return False
        if self._data[self._at : self._at + 2] != b"\r\n":
            raise BadResponse("a chunk longer than its declared length")
        self._at += 2
        self._step = self._read_size
        return True

    def _read_trailer(self) -> bool:
        if self._data.startswith(b"\r\n", self._at):
            self._at += 2
            self._end()
            return True
        end = self._data.find(b"\r\n\r\n", self._at, self._at + TRAILER_BYTES_MAX)
        if end >= 0:
            self._at = end + 4
            self._end()
            return True
        if len(self._data) - self._at >= TRAILER_BYTES_MAX:
            raise BadResponse("a trailer without an end")
        return False

    # --- below

    def _take(self, limit: int) -> None:
        """Up to `limit` bytes of what is there are the body's."""
        piece = self._data[self._at : self._at + limit]
        self._at += len(piece)
        self._left -= len(piece)
        self._pieces.append(piece)

    def _pass_on(self) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            self._sink.on_data(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _end(self) -> None:
        self._pass_on()
        self.is_over = True
        self._sink.on_end()


def _header(line: bytes) -> Header:
    name, colon, value = line.partition(b":")
    if not colon or not _NAME.fullmatch(name) or b"\n" in value or b"\r" in value or b"\0" in value:
        raise BadResponse("a header that is none")
    return name.lower(), value.strip(b" \t")
