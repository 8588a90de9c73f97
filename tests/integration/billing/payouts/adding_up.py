"""A provider's statement, and whether it adds up."""

from __future__ import annotations

from billing.money import parse_amount
from billing.payouts.statement_formats import CSV_COLUMNS


def units(text: str, scale: int = 6) -> int:
    """Back to base units, exactly, as a program that reads the file would."""
    return -parse_amount(text[1:], scale=scale) if text.startswith("-") else parse_amount(text or "0", scale=scale)


def assert_adds_up(rows: list[dict[str, str]], scale: int = 6) -> int:
    """Opening + lines = closing in every column and in all; returns the closing balance."""
    opening, *lines, closing = rows
    assert (opening["record"], closing["record"]) == ("opening", "closing")
    columns = [name for name in CSV_COLUMNS if name.startswith("change_")]
    balance = units(opening["balance"], scale)
    for line in lines:
        assert units(line["change"], scale) == sum(units(line[column], scale) for column in columns)
        balance += units(line["change"], scale)
        assert units(line["balance"], scale) == balance
    for column in columns:
        moved = sum(units(line[column], scale) for line in lines)
        assert units(opening[column], scale) + moved == units(closing[column], scale), column
    assert units(closing["balance"], scale) == balance == sum(units(closing[column], scale) for column in columns)
    return balance
