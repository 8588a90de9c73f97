"""Money as pages write it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from billing.account_kinds import AccountKind
from billing.books.owned import AssetBalance
from billing.money import format_amount

USD_MICROS: Final = 1_000_000


def price_text(usd_micros: int) -> str:
    """$1.25, with as many digits as a small price needs."""
    return f"${usd_micros // USD_MICROS}.{usd_micros % USD_MICROS:06d}"[:-2].removesuffix("00")


def dollars(usd_micros: int) -> str:
    """$0.000123: an answer often costs less than a cent."""
    text = f"{usd_micros // USD_MICROS}.{usd_micros % USD_MICROS:06d}"
    return "$" + (text[:-4] if text.endswith("0000") else text.rstrip("0"))


def amounts_of(
    owned: AssetBalance, names: Mapping[AccountKind, str], always: Collection[AccountKind]
) -> list[tuple[str, str]]:
    """Name and amount of each kind that holds something, and of those that are always shown."""
    return [
        (name, format_amount(owned.by_kind[kind], code=owned.asset, scale=owned.scale))
        for kind, name in names.items()
        if kind in always or owned.by_kind[kind]
    ]
