"""What `souk` prints: tables for people on a terminal, exactly one JSON value a line on stdout with --json."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from jobs.client.job_states import STYLES
from jobs.client.tables import FittedTable
from jobs.spec.units import format_money

if TYPE_CHECKING:
    from jobs.wire import AssetView

PIPE_COLUMNS = 100_000
ID_COLUMNS = frozenset({"id", "payout", "top-up", "dispute", "invoice", "lease", "job"})


def console() -> Console:
    """Where people read; made anew, so that a redirected stdout is seen."""
    is_terminal = sys.stdout.isatty()
    # What reads a pipe gets whole rows, however wide: only a terminal has an edge.
    width = None if is_terminal else PIPE_COLUMNS
    return Console(file=sys.stdout, highlight=False, soft_wrap=not is_terminal, width=width)


def notice(text: str) -> None:
    """A remark beside the result: on stderr, so that stdout stays what was asked for."""
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, markup=False)


def print_json(value: Any) -> None:
    """One line of JSON; views as the API has them."""
    sys.stdout.write(json.dumps(jsonable(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def jsonable(value: Any) -> Any:
    """Views and whatever holds them as plain JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """A table whose `right` columns are numbers; on a narrow terminal ids are shortened, and nothing is cut."""
    made = FittedTable(title=title, id_columns=ID_COLUMNS)
    for name in columns:
        is_whole = name in right or name in ID_COLUMNS
        made.add_column(name, justify="right" if name in right else "left", no_wrap=is_whole, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def money(usd_micros: int | None) -> str:
    """`$1.25`, exact to the micro-dollar; a dash for what is not known."""
    if usd_micros is None:
        return "-"
    text = format_money(usd_micros)
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"


def amount(units: int, asset: str, known: Sequence[AssetView]) -> str:
    """An amount of an asset as people write it; in base units where the marketplace does not say its decimals."""
    from jobs.payment.terms import show_units

    found = next((each for each in known if each.code == asset), None)
    return show_units(units, asset=asset, scale=found.scale) if found else f"{units} {asset}"


def duration(seconds: float | None) -> str:
    """`1h 5m`, the two largest units; a dash for what is not known."""
    if seconds is None:
        return "-"
    left = max(0, round(seconds))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts[:2]) or "0s"


def ago(at: datetime | None) -> str:
    """How long ago something was."""
    return "-" if at is None else f"{duration((datetime.now(UTC) - at).total_seconds())} ago"


def state(name: str) -> str:
    """A job's state with its colour, as rich markup."""
    style = STYLES.get(name)
    return f"[{style}]{name}[/]" if style else name


def size(count: int) -> str:
    """`1.5 MB`"""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
