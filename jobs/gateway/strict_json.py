"""Refuses the numbers that Python reads from JSON and cannot write as JSON: NaN, Infinity, and such as 1e999.

Of the last it makes Infinity, and it writes `NaN` and `Infinity`, at which clients in other languages fail.
"""

from __future__ import annotations

import math
from typing import NoReturn

SHOWN_CHARACTERS_MAX = 40


def finite(number: str) -> float:
    """For `parse_float`. Raises ValueError."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:SHOWN_CHARACTERS_MAX]} is too large a number")
    return value


def no_number(constant: str) -> NoReturn:
    """For `parse_constant`. Raises ValueError."""
    raise ValueError(f"{constant} is no number in JSON")
