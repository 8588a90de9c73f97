"""What went through the tunnels for one lease: requests, bytes, and the tokens that its engine reported.

An engine names them in a `usage` object. That is mostly near the answer's end, but what a caller may ask for can follow
it: so each answer is searched as it comes, and of it USAGE_BYTES_MAX bytes are kept; no answer is parsed or held. One
that was cut off, or is an error, has no usage: it is counted under `without_usage`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

USAGE_BYTES_MAX: Final = 2048
OVERLAP_BYTES: Final = 64  # of a piece, searched again with the next: the object's name may lie in both
TOKENS_MAX: Final = 100_000_000  # of one answer; more is nonsense, and is counted as none

_USAGE = re.compile(rb'"usage"\s*:\s*\{')  # text that says this has its quotes escaped, so it is no match
_INPUT = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_OUTPUT = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})')


@dataclass
class Counts:
    """Since the lease was announced first."""

    requests: int = 0  # of callers, that reached the engine
    own: int = 0  # the gateway's own that reached it: probes and checks, which are in no other figure here
    failed: int = 0  # that ended without a whole answer, for whatever reason
    bytes_in: int = 0  # of requests' bodies
    bytes_out: int = 0  # of answers' bodies
    input_tokens: int = 0
    output_tokens: int = 0
    without_usage: int = 0  # of the requests, those whose answers did not report their tokens

    def add_usage(self, text: bytes) -> None:
        """Read the last `usage` object in a part of an answer."""
        ends = [found.end() for found in _USAGE.finditer(text)]
        if not ends:
            self.without_usage += 1
            return
        usage = text[ends[-1] :]
        self.input_tokens += _number(_INPUT.search(usage))
        self.output_tokens += _number(_OUTPUT.search(usage))


class UsageText:
    """The last `usage` object of an answer, as far as USAGE_BYTES_MAX, found in the answer's pieces."""

    __slots__ = ("_overlap", "text")

    def __init__(self) -> None:
        self.text = self._overlap = b""

    def add(self, piece: bytes) -> None:
        """The answer's next bytes."""
        data = self._overlap + piece
        starts = [found.start() for found in _USAGE.finditer(data)] if b'"usage"' in data else []
        if starts:
            self.text = data[starts[-1] : starts[-1] + USAGE_BYTES_MAX]
        elif 0 < len(self.text) < USAGE_BYTES_MAX:
            self.text += piece[: USAGE_BYTES_MAX - len(self.text)]
        self._overlap = data[-OVERLAP_BYTES:]


def _number(found: re.Match[bytes] | None) -> int:
    number = int(found.group(1)) if found else 0
    return number if number <= TOKENS_MAX else 0
