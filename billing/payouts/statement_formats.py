"""A statement as CSV, for spreadsheets and programs; as PDF, for people; as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfgen.canvas import Canvas

from billing.payouts.errors import StatementRefused
from billing.payouts.statement import COLUMNS, Line, Period, Section, Sums
from billing.transfer_codes import TransferCode

JSON_LINES_MAX: Final = 5_000
PDF_LINES_MAX: Final = 10_000
CSV_LINES_PER_WRITE: Final = 500

CSV_COLUMNS: Final = (
    "record",
    "asset",
    "time",
    "what",
    "job_id",
    "lease_id",
    "payout_id",
    "external_id",
    "gross",
    "fee",
    "change_pending",
    "change_available",
    "change_reserve",
    "change_stake",
    "change",
    "balance",
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", *"\uff1d\uff0b\uff0d\uff20")  # the last: = + - @ of full width

_MARGIN, _ROW, _SIZE = 36, 11, 7.5
_TABS: Final = (36, 128, 238, 480, 560, 630, 715, 806)  # left edges; from the fifth on: right edges
_HEADINGS: Final = ("time (UTC)", "what", "lease, job or payout", "gross", "fee", "change", "balance")


def decimal_text(units: int, scale: int) -> str:
    """Base units as an exact decimal without a currency: -1.5 million units of scale 6 -> "-1.500000"."""
    whole, fraction = divmod(abs(units), 10**scale)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{fraction:0{scale}d}" if scale else f"{sign}{whole}"


def safe_text(value: object) -> str:
    """Text that a spreadsheet takes for text: what might be read as a formula gets a quote in front."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_csv(sections: Sequence[Section]) -> Iterator[str]:
    """The file in pieces; each section begins with its opening balance and ends with its closing one."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(CSV_COLUMNS)
    written = 0
    for section in sections:
        writer.writerow(_csv_balance("opening", section, section.opening))
        balance = section.opening.total
        for line in section.lines():
            balance += line.change.total
            writer.writerow(_csv_line(section, line, balance))
            written += 1
            if written % CSV_LINES_PER_WRITE == 0:
                yield _drain(buffer)
        writer.writerow(_csv_balance("closing", section, section.closing))
    yield _drain(buffer)


def write_json(sections: Sequence[Section], period: Period) -> dict[str, Any]:
    """The whole statement; amounts are strings of base units. Raises StatementRefused when it is too long."""
    return {
        "since": period.since.isoformat(),
        "until": period.until.isoformat(),
        "sections": [_json_section(section) for section in sections],
    }


def write_pdf(sections: Sequence[Section], period: Period, *, name: str) -> bytes:
    """Pages of A4; raises StatementRefused when there would be more than anybody reads."""
    buffer = io.BytesIO()
    last = period.until - timedelta(days=1)
    paper = _Paper(Canvas(buffer, pagesize=landscape(A4), pageCompression=1), f"{name}, {period.since:%F} to {last:%F}")
    count = 0
    for section in sections:
        paper.begin(section.asset.code)
        paper.row(_pdf_balance("opening balance", section, section.opening))
        balance = section.opening.total
        for line in section.lines():
            count += 1
            if count > PDF_LINES_MAX:
                raise StatementRefused(why=f"it has more than {PDF_LINES_MAX} lines; ask for format=csv")
            balance += line.change.total
            paper.row(_pdf_line(section, line, balance))
        paper.row(_pdf_balance("closing balance", section, section.closing))
    paper.end()
    return buffer.getvalue()


def _csv_balance(record: str, section: Section, sums: Sums) -> list[str]:
    scale = section.asset.scale
    columns = [decimal_text(getattr(sums, column), scale) for column in COLUMNS.values()]
    total = decimal_text(sums.total, scale)
    return [record, safe_text(section.asset.code), *[""] * 8, *columns, "", total]


def _csv_line(section: Section, line: Line, balance: int) -> list[str]:
    scale = section.asset.scale
    texts = (line.code, line.job_id, line.lease_id, line.payout_id, line.external_id)
    amounts = [line.gross, line.fee, *(getattr(line.change, column) for column in COLUMNS.values())]
    return [
        "line",
        safe_text(section.asset.code),
        line.at.isoformat(timespec="microseconds"),
        *map(safe_text, texts),
        *("" if amount is None else decimal_text(amount, scale) for amount in amounts),
        decimal_text(line.change.total, scale),
        decimal_text(balance, scale),
    ]


def _drain(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _json_section(section: Section) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for line in section.lines():
        if len(lines) >= JSON_LINES_MAX:
            raise StatementRefused(why=f"it has more than {JSON_LINES_MAX} lines; ask for format=csv")
        lines.append(
            {
                "time": line.at.isoformat(),
                "what": str(line.code),
                "job_id": line.job_id and str(line.job_id),
                "lease_id": line.lease_id and str(line.lease_id),
                "payout_id": line.payout_id and str(line.payout_id),
                "external_id": line.external_id,
                "gross": None if line.gross is None else str(line.gross),
                "fee": None if line.fee is None else str(line.fee),
                "change": _json_sums(line.change),
            }
        )
    return {
        "asset": section.asset.code,
        "scale": section.asset.scale,
        "opening": _json_sums(section.opening),
        "lines": lines,
        "closing": _json_sums(section.closing),
    }


def _json_sums(sums: Sums) -> dict[str, str]:
    return {column: str(getattr(sums, column)) for column in (*COLUMNS.values(), "total")}


def _pdf_line(section: Section, line: Line, balance: int) -> list[str]:
    scale = section.asset.scale
    label = TransferCode(line.code).label.lower()
    if line.code in {TransferCode.PAYOUT, TransferCode.PAYOUT_RETURNED}:
        reference = f"payout {line.external_id or line.payout_id}"
    else:
        reference = f"lease {line.lease_id}" if line.lease_id else f"job {line.job_id}" if line.job_id else ""
    return [
        f"{line.at:%F %T}",
        label,
        reference,
        "" if line.gross is None else decimal_text(line.gross, scale),
        "" if line.fee is None else decimal_text(line.fee, scale),
        decimal_text(line.change.total, scale),
        decimal_text(balance, scale),
    ]


def _pdf_balance(label: str, section: Section, sums: Sums) -> list[str]:
    scale = section.asset.scale
    parts = [(column, getattr(sums, column)) for column in COLUMNS.values()]
    split = ", ".join(f"{column} {decimal_text(amount, scale)}" for column, amount in parts if amount)
    return ["", label, split, "", "", "", decimal_text(sums.total, scale)]


class _Paper:
    """Rows down a page, and a new page when it is full."""

    def __init__(self, canvas: Canvas, title: str) -> None:
        self._canvas, self._title = canvas, title
        self._height = landscape(A4)[1]
        self._y, self._pages, self._asset = 0.0, 0, ""
        canvas.setTitle(f"Souk statement: {title}")

    def begin(self, asset: str) -> None:
        """A section on a page of its own."""
        self._asset, self._y = asset, 0.0

    def row(self, cells: list[str]) -> None:
        if self._y < _MARGIN + _ROW:
            self._turn_page()
        for index, cell in enumerate(cells):
            self._put(index, cell)
        self._y -= _ROW

    def end(self) -> None:
        if not self._pages:
            self._turn_page()
            self._canvas.drawString(_MARGIN, self._y, "Nothing was earned in this period.")
        self._canvas.save()

    def _turn_page(self) -> None:
        if self._pages:
            self._canvas.showPage()
        self._pages += 1
        self._y = self._height - _MARGIN
        self._canvas.setFont("Helvetica-Bold", 10)
        heading = f"Souk: statement of {self._title}" + (f", in {self._asset}" if self._asset else "")
        self._canvas.drawString(_MARGIN, self._y, _latin(heading))
        self._canvas.drawRightString(_TABS[-1], self._y, f"page {self._pages}")
        self._y -= 2 * _ROW
        self._canvas.setFont("Helvetica-Bold", _SIZE)
        for index, text in enumerate(_HEADINGS):
            self._put(index, text)
        self._y -= _ROW
        self._canvas.setFont("Helvetica", _SIZE)

    def _put(self, index: int, text: str) -> None:
        if index < 3:
            self._canvas.drawString(_TABS[index], self._y, _latin(text))
        else:
            self._canvas.drawRightString(_TABS[index + 1], self._y, text)


def _latin(text: str) -> str:
    """What the built-in fonts can show; another letter becomes a question mark."""
    return text.encode("latin-1", "replace").decode("latin-1")
