"""What programs print, made safe to show: no byte of a customer's or provider's log can move a cursor or hide text."""

from __future__ import annotations

import re

HELD_BYTES_MAX = 256  # the longest escape sequence; anything longer is treated as text

# ECMA-48: control sequences, strings up to their terminator, and the short escapes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,255}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-~]"
)
# Other control characters, the C1 set, and what turns the direction of writing round or shows nothing at all.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_OPEN_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")


def clean(raw: bytes) -> str:
    """The text with its lines, without anything that a terminal would obey."""
    text = _ESCAPES.sub("", raw.decode("utf-8", "replace"))
    # A bare carriage return writes over the line (progress bars); here each writing is a line of its own.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


def held_back(raw: bytes) -> int:
    """How many bytes at the end only make sense together with those to come: half a character or escape sequence."""
    if raw.endswith(b"\r"):
        return 1
    tail = raw[-HELD_BYTES_MAX:]
    if match := _OPEN_ESCAPE.search(tail):
        return len(tail) - match.start()
    for length in range(1, min(3, len(raw)) + 1):
        lead = raw[-length]
        if lead & 0b1100_0000 == 0b1000_0000:
            continue  # inside a character: its first byte has its length
        needed = 2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4 if lead >> 3 == 0b11110 else 1
        return length if needed > length else 0
    return 0
