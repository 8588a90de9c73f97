"""Server-sent events as engines send them: however the bytes are cut, the same events come out, in bounded memory.

Only `data` is kept: OpenAI's streams use nothing else. Lines end with LF or CRLF; a lone CR, which the standard also
allows and no engine sends, ends none.
"""

from __future__ import annotations

EVENT_BYTES_MAX = 1 << 20
DONE = b"[DONE]"
DONE_EVENT = b"data: [DONE]\n\n"
_DATA = b"data:"
_END = b"\n\n"


class BadStream(Exception):
    """What the engine sends is not a stream of OpenAI's events."""


class EventReader:
    """Bytes in, the data of whole events out."""

    __slots__ = ("_held", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._held = b""  # a CR whose LF may follow

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that this chunk completes. Raises BadStream for one without an end."""
        if self._held or b"\r" in chunk:
            chunk = self._without_returns(chunk)
        rest = self._rest
        if not rest and chunk.endswith(_END):
            return _events(chunk)
        seen = max(0, len(rest) - 1)
        rest += chunk
        cut = rest.rfind(_END, seen)
        if cut < 0:
            if len(rest) > EVENT_BYTES_MAX:
                raise BadStream(f"an event of the engine is longer than {EVENT_BYTES_MAX} bytes")
            return []
        block = bytes(rest[: cut + 2])
        del rest[: cut + 2]
        if len(rest) > EVENT_BYTES_MAX:
            raise BadStream(f"an event of the engine is longer than {EVENT_BYTES_MAX} bytes")
        return _events(block)

    def finish(self) -> list[bytes]:
        """The stream has ended: its last event where only the empty line is missing; half a line is none."""
        rest, self._rest = bytes(self._rest), bytearray()
        return _events(rest) if rest.endswith(b"\n") else []

    def _without_returns(self, chunk: bytes) -> bytes:
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        return (chunk[:-1] if self._held else chunk).replace(b"\r\n", b"\n")


def write_event(data: bytes) -> bytes:
    """`data` as an event; each of its lines is one of the event's."""
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    return b"data: " + data + _END


def write_comment(text: str) -> bytes:
    """What clients pass over, and people who look at the stream read."""
    return b": " + text.replace("\n", " ").encode() + _END


def _events(block: bytes) -> list[bytes]:
    found = []
    for raw in block.split(_END):
        if raw.startswith(b"data: ") and b"\n" not in raw:
            found.append(raw[6:])
        elif raw:
            lines = [line[5:] for line in raw.split(b"\n") if line.startswith(_DATA)]
            if lines:
                found.append(b"\n".join(line[1:] if line.startswith(b" ") else line for line in lines))
    return found
