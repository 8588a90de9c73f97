"""An invoice as JSON, CSV and PDF: three faces of the one row, which is never changed."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from reportlab.lib.pagesizes import A4
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

from billing.models import Invoice

LINES_PER_PAGE: Final = 48
LINES_MAX: Final = 24_000  # on paper: 500 pages
TEXT_CHARACTERS_MAX: Final = 90
_TITLES: Final = {Invoice.Kind.INVOICE.value: "Invoice", Invoice.Kind.CREDIT_NOTE.value: "Credit note"}
_FORMULA_STARTS: Final = ("=", "+", "@", "\t", "\r")  # a spreadsheet would run it; a minus may be a number


def as_json(invoice: Invoice) -> dict[str, Any]:
    """Everything that it says; amounts are strings of base units."""
    return {
        "id": str(invoice.pk),
        "number": invoice.label,
        "kind": invoice.kind,
        "credits": invoice.credits.label if invoice.credits else None,
        "month": f"{invoice.month:%Y-%m}",
        "asset": invoice.asset.code,
        "scale": invoice.asset.scale,
        "buyer": invoice.buyer,
        "seller": invoice.seller,
        "lines": invoice.lines,
        "charged": str(invoice.charged),
        "refunded": str(invoice.refunded),
        "total": str(invoice.total),
        "tax_bps": invoice.tax_bps,
        "tax": str(invoice.tax),
        "net": str(invoice.total - invoice.tax),
        "topped_up": str(invoice.topped_up),
        "given": str(invoice.given),
        "issued_at": invoice.issued_at.isoformat(),
    }


def as_csv(invoice: Invoice) -> str:
    """One row a line, then the totals."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["number", "at", "job_id", "what", "amount", "asset"])
    for line in invoice.lines:
        row = [invoice.label, line["at"], line["job_id"] or "", line["what"], line["amount"], invoice.asset.code]
        writer.writerow([_plain(str(cell)) for cell in row])
    for what in ("total", "tax"):
        amount = str(getattr(invoice, what))
        writer.writerow([invoice.label, invoice.issued_at.isoformat(), "", what, amount, invoice.asset.code])
    return text.getvalue()


def as_pdf(invoice: Invoice) -> bytes:
    """The paper: A4, one line a job; the same row gives the same bytes."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4, invariant=True)
    canvas.setTitle(f"{_TITLES[invoice.kind]} {invoice.label}")
    rows = [*_head(invoice), *_body(invoice), *_foot(invoice)]
    for start in range(0, len(rows), LINES_PER_PAGE):
        _page(canvas, rows[start : start + LINES_PER_PAGE])
    canvas.save()
    return out.getvalue()


def _head(invoice: Invoice) -> list[tuple[str, str]]:
    title = f"{_TITLES[invoice.kind]} {invoice.label}"
    rows = [(title, ""), (f"Issued {invoice.issued_at:%Y-%m-%d}, for {invoice.month:%B %Y}", ""), ("", "")]
    if invoice.credits:
        rows.append((f"Credits invoice {invoice.credits.label}", ""))
    for who, party in (("From", invoice.seller), ("To", invoice.buyer)):
        lines = [line for key, value in sorted(party.items()) if value for line in _lines(key, str(value))]
        rows += [(f"{who}:", ""), *((f"    {line}", "") for line in lines), ("", "")]
    return rows


def _body(invoice: Invoice) -> list[tuple[str, str]]:
    show = invoice.asset.show
    shown, more = invoice.lines[:LINES_MAX], invoice.lines[LINES_MAX:]
    rows = [(f"{line['at'][:10]}  {line['what']}  {line['job_id'] or ''}", show(int(line["amount"]))) for line in shown]
    if more:  # the total below is of all of them
        rest = sum(int(line["amount"]) for line in more)
        rows.append((f"and {len(more)} more, which the CSV of this invoice lists", show(rest)))
    return rows


def _foot(invoice: Invoice) -> list[tuple[str, str]]:
    show = invoice.asset.show
    rows = [("", ""), ("Total", show(invoice.total))]
    if invoice.tax_bps:
        rows += [
            (f"of it tax, {invoice.tax_bps / 100:g} %", show(invoice.tax)),
            ("of it net", show(invoice.total - invoice.tax)),
        ]
    if invoice.topped_up or invoice.given:
        rows += [("Topped up in this month", show(invoice.topped_up)), ("Credit given", show(invoice.given))]
    return [*rows, ("", ""), ("Paid from the prepaid balance: nothing is due.", "")]


def _lines(key: str, value: str) -> list[str]:
    return [f"{key}: {value.splitlines()[0]}", *value.splitlines()[1:]]


def _page(canvas: Canvas, rows: list[tuple[str, str]]) -> None:
    canvas.setFont("Helvetica", 9)
    for index, (left, right) in enumerate(rows):
        height = 280 * mm - index * 5.4 * mm
        canvas.drawString(20 * mm, height, left[:TEXT_CHARACTERS_MAX])
        canvas.drawRightString(190 * mm, height, right)
    canvas.showPage()


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA_STARTS) else cell
