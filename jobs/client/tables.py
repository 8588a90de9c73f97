"""Tables that lose nothing on a narrow terminal: ids are shortened, words wrapped, or each row becomes lines."""

from __future__ import annotations

from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

ID_CHARACTERS_MIN: Final = 8  # an id's beginning: the commands take it in place of the whole
WORD_CHARACTERS_MAX: Final = 24  # a longer word, such as a path, may be broken
GAP: Final = 2  # between columns


class FittedTable(Table):
    """A table that is never cut: where it is too wide for the terminal, it is made narrower, or a list of facts."""

    def __init__(self, *, title: str, id_columns: frozenset[str]) -> None:
        super().__init__(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        self.header_style = "dim"
        self._id_columns = id_columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._width(self._measure(console, options, is_least=False)) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for column in self.columns:
            if column.header in self._id_columns:
                shorten_ids(column)
        least, most = (self._measure(console, options, is_least=is_least) for is_least in (True, False))
        if self._width(least) <= options.max_width:
            for column, width in zip(self.columns, self._share(least, most, options.max_width), strict=True):
                column.width = width
            yield from super().__rich_console__(console, options)
            return
        yield from self._as_facts(console)

    def _measure(self, console: Console, options: ConsoleOptions, *, is_least: bool) -> list[int]:
        """Each column's width: of its longest cell, or the least at which its text is only wrapped between words."""
        wide = options.update(max_width=10**6)
        widths = []
        for column in self.columns:
            cells = [Measurement.get(console, wide, _text(console, cell)) for cell in (column.header, *column.cells)]
            most = max(cell.maximum for cell in cells)
            word = max((min(cell.minimum, WORD_CHARACTERS_MAX) for cell in cells), default=0)
            widths.append(word if is_least and not column.no_wrap else most)
        return widths

    def _share(self, least: list[int], most: list[int], width_max: int) -> list[int]:
        """Widths that fit: the widest column that can be narrower becomes so, until all fit."""
        widths = list(most)
        while self._width(widths) > width_max:
            widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=lambda n: widths[n])
            widths[widest] -= 1
        return widths

    @staticmethod
    def _width(widths: list[int]) -> int:
        return sum(widths) + GAP * max(0, len(widths) - 1)

    def _as_facts(self, console: Console) -> RenderResult:
        """Each row as lines of `column  cell`, rows apart by an empty line."""
        if self.title:
            yield Text(str(self.title), style="bold")
        names = max((len(str(column.header)) for column in self.columns), default=0)
        rows = list(zip(*(column.cells for column in self.columns), strict=True))
        for number, row in enumerate(rows):
            facts = Table(box=None, pad_edge=False, show_header=False)
            facts.add_column(style="dim", width=names, no_wrap=True)
            facts.add_column(overflow="fold")
            for column, cell in zip(self.columns, row, strict=True):
                if _text(console, cell).plain:
                    facts.add_row(_text(console, column.header), cell)
            if number:
                yield Text()
            yield facts


def shorten_ids(column: Column) -> None:
    """Ids by their beginnings, as long as all of the column need to differ."""
    ids = {str(cell) for cell in column.cells}
    longest = max(map(len, ids), default=0)
    length = ID_CHARACTERS_MIN
    while length < longest and len({each[:length] for each in ids}) < len(ids):
        length += 1
    column._cells = [str(cell)[:length] for cell in column.cells]


def _text(console: Console, cell: object) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell))
