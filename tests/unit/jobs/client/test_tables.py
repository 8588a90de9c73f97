"""Tables on terminals of 80 columns and narrower, and in a pipe: nothing is cut, ever."""

from __future__ import annotations

import io
import re
from uuid import UUID

import pytest
from rich.console import Console

from jobs.client.output import PIPE_COLUMNS, table

IDS = [str(UUID(int=number << 96)) for number in (0x11111111, 0x22222222, 0x22222223)]
COLUMNS = ("id", "name", "state", "progress", "cost", "at most", "submitted")
ROWS: list[tuple[str, ...]] = [
    (each, f"llama-{n}", "[green]running[/]", f"step {n}/300, loss 3.211", "$0.045317", "$2.00", "6m 48s ago")
    for n, each in enumerate(IDS)
]


def shown(width: int, columns: tuple[str, ...] = COLUMNS, rows: list[tuple[str, ...]] = ROWS) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table("Some", columns, rows, right=("cost", "at most")))
    return out.getvalue()


def words(text: str) -> set[str]:
    return set(re.findall(r"\S+", text))


def test_a_pipe_gets_one_whole_line_a_row() -> None:
    lines = shown(PIPE_COLUMNS).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert lines[2].split() == f"{IDS[0]} llama-0 running step 0/300, loss 3.211 $0.045317 $2.00 6m 48s ago".split()


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 100, 130])
def test_a_terminal_of_any_width_shows_everything(width: int) -> None:
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    plain = text.replace(" ", "").replace("\n", "")
    for row in ROWS:
        assert row[0][:8] in plain
        for word in ("running", "$0.045317", "3.211", row[1]):
            assert word in plain


def test_80_columns_shorten_ids_before_they_wrap_words() -> None:
    text = shown(80)
    assert words("22222222 22222223 llama-2 $2.00") <= words(text), "as long as they need to differ"
    assert IDS[1] not in text
    alike = [(IDS[0], *ROWS[0][1:]), (IDS[0][:-1] + "7", *ROWS[1][1:])]
    assert IDS[0] in shown(80, rows=alike).replace("\n", ""), "which differ at their ends are whole"


def test_what_cannot_fit_side_by_side_becomes_lines_of_facts() -> None:
    columns = tuple(f"column-{n}" for n in range(9))
    text = shown(60, columns, [tuple(f"value-{n}-{row}" for n in range(9)) for row in range(2)])
    assert "column-8  value-8-0" in text
    assert "column-0  value-0-1" in text
    assert max(map(len, text.splitlines())) <= 60
