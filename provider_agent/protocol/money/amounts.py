"""Amounts as people write and read them: whole base units of an asset, exactly, or refused."""

from __future__ import annotations

import re
from typing import Final

USD: Final = "USD"
UNITS_MAX: Final = 2**256 - 1  # no token has more
AMOUNT_CHARACTERS_MAX: Final = 120

_DECIMAL = re.compile(r"([0-9]{1,78})(?:\.([0-9]{1,36}))?")


def show_units(units: int, *, asset: str, scale: int) -> str:
    """Base units as people write them, exactly: "$2.50", "1.5 TUSD", "-3 POINTS"."""
    whole, fraction = divmod(abs(units), 10**scale)
    sign = "-" if units < 0 else ""
    digits = f"{fraction:0{scale}d}".rstrip("0") if scale else ""
    if asset == USD:
        return f"{sign}${whole}.{digits:0<2}"
    return f"{sign}{whole}.{digits} {asset}" if digits else f"{sign}{whole} {asset}"


def parse_units(text: str, *, scale: int, least: int = 1) -> int:
    """Base units of what a person wrote ("1.5"). Raises ValueError for what is not plainly an amount of this asset:

    no digits, another sign or letter, more decimals than it has (zeros too), less than `least`, more than 256 bits.
    """
    match = _DECIMAL.fullmatch(text.strip()) if len(text) <= AMOUNT_CHARACTERS_MAX else None
    if match is None:
        raise ValueError("write digits with a point at most, such as 2.50")
    fraction = match[2] or ""
    if len(fraction) > scale:
        raise ValueError(f"it has {scale} decimals at most")
    units: int = int(match[1]) * 10**scale + int(fraction.ljust(scale, "0") or "0")
    if units < least:
        raise ValueError("it is not above zero" if least == 1 else f"it is below {least} base units")
    if units > UNITS_MAX:
        raise ValueError("it does not fit in 256 bits")
    return units
