"""Amounts: whole base units (micro-USD, or a token's), shown and read as people write them, split without loss."""

from __future__ import annotations

import re
from typing import Final

from provider_agent.protocol import parse_units, show_units
from provider_agent.protocol.money.amounts import AMOUNT_CHARACTERS_MAX, USD

USD_SCALE: Final = 6  # micro-USD
MICROS_PER_USD: Final = 1_000_000
MICROS_PER_CENT: Final = 10_000
BPS_WHOLE: Final = 10_000  # basis points in one
USD_DIGITS_MAX: Final = 18  # of what a person may type

__all__ = [
    "AMOUNT_CHARACTERS_MAX",
    "BPS_WHOLE",
    "MICROS_PER_CENT",
    "MICROS_PER_USD",
    "USD_SCALE",
    "format_amount",
    "format_usd",
    "parse_amount",
    "parse_usd",
    "split_cents",
]

_DOLLARS = re.compile(r"\$?\s*([0-9][0-9_,]*)(?:\.([0-9]{1,6}))?")


def format_usd(usd_micros: int) -> str:
    """Exact dollars with at least two decimals: 2_500_000 -> "$2.50", 1_234 -> "$0.001234"."""
    return show_units(usd_micros, asset=USD, scale=USD_SCALE)


def format_amount(units: int, *, code: str, scale: int) -> str:
    """Base units of an asset as people write them, exactly: "$2.50", "1.5 WETH", "-3 POINTS"."""
    return show_units(units, asset=code, scale=scale)


def parse_amount(text: str, *, scale: int) -> int:
    """Base units of what a person wrote ("1.5"), zero too; raises ValueError for what is not plainly an amount."""
    return parse_units(text, scale=scale, least=0)


def parse_usd(text: str) -> int:
    """Micro-USD of what a person wrote ("2.50", "$1,000"); raises ValueError rather than round."""
    match = _DOLLARS.fullmatch(text.strip())
    if match is None or len(text) > USD_DIGITS_MAX + len("$.,,,,,"):
        raise ValueError(f"{text!r} is not an amount in dollars with at most six decimals, such as 2.50")
    whole = match[1].replace(",", "").replace("_", "")
    return int(whole) * MICROS_PER_USD + int((match[2] or "").ljust(6, "0"))


def split_cents(usd_micros: int) -> tuple[int, int]:
    """(cents, dust): what a rail that knows only cents can move, and what stays behind."""
    if usd_micros < 0:
        raise ValueError(f"{usd_micros} is below zero")
    return divmod(usd_micros, MICROS_PER_CENT)
