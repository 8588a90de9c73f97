"""What went through the tunnels for one lease: requests, bytes, and the tokens that its engine reported.

An engine ends an answer with a `usage` object. The end of each answer is kept (TAIL_BYTES_MAX) and searched, so that no
answer is parsed or held. An answer that was cut off, or is an error, has none: it is counted under `without_usage`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TAIL_BYTES_MAX: Final = 2048
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

    def add_usage(self, tail: bytes) -> None:
        """Read the last `usage` object of an answer's end."""
        ends = [found.end() for found in _USAGE.finditer(tail)]
        if not ends:
            self.without_usage += 1
            return
        usage = tail[ends[-1] :]
        self.input_tokens += _number(_INPUT.search(usage))
        self.output_tokens += _number(_OUTPUT.search(usage))


def _number(found: re.Match[bytes] | None) -> int:
    number = int(found.group(1)) if found else 0
    return number if number <= TOKENS_MAX else 0
