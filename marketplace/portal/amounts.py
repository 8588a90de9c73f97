"""Money as pages write it."""

from __future__ import annotations

from typing import Final

USD_MICROS: Final = 1_000_000


def price_text(usd_micros: int) -> str:
    """$1.25, with as many digits as a small price needs."""
    return f"${usd_micros // USD_MICROS}.{usd_micros % USD_MICROS:06d}"[:-2].removesuffix("00")


def dollars(usd_micros: int) -> str:
    """$0.000123: an answer often costs less than a cent."""
    text = f"{usd_micros // USD_MICROS}.{usd_micros % USD_MICROS:06d}"
    return "$" + (text[:-4] if text.endswith("0000") else text.rstrip("0"))
