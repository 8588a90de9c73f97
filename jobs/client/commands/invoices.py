"""invoices: list, show, save."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import Json, Server, find_row, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire.documents import InvoiceView

PANEL = "Account"
FORMATS = ("pdf", "csv")

invoices = typer.Typer(
    no_args_is_help=True, help="Invoices and credit notes: one a month and asset, made when it ends."
)

Number = Annotated[str, typer.Argument(metavar="INVOICE", help="Its number, its id, or how that begins.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(invoices, name="invoices", rich_help_panel=PANEL)
    for name, command in (("list", list_invoices), ("show", show), ("save", save)):
        invoices.command(name)(command)


def list_invoices(server: Server = None, as_json: Json = False) -> None:
    """List invoices and credit notes, newest first.

    Example: souk invoices list
    """
    from rich.markup import escape

    from jobs.client.output import console, print_json, table

    with open_souk(server) as souk:
        found = souk.invoices()
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("No invoice yet: one is made after the end of each month in which jobs were charged.")
        return
    rows = [
        (
            escape(each.number),
            each.kind + (f" to {escape(each.credits)}" if each.credits else ""),
            each.month,
            _show(each, each.total),
            _show(each, each.tax),
            f"{each.issued_at:%Y-%m-%d}",
        )
        for each in found
    ]
    columns = ("number", "kind", "month", "total", "of it tax", "issued")
    console().print(table("", columns, rows, right=columns[3:5]))


def show(invoice: Number, server: Server = None, as_json: Json = False) -> None:
    """Show one invoice with its lines.

    Example: souk invoices show 2026-000012
    """
    from jobs.client.output import console, print_json, table

    with open_souk(server) as souk:
        found = _find(souk, invoice)
    if as_json:
        print_json(found)
        return
    rows = [
        (f"{line.at:%Y-%m-%d}", str(line.job_id or ""), line.what, _show(found, line.amount)) for line in found.lines
    ]
    screen = console()
    screen.print(f"{found.kind} {found.number} of {found.month}, for {found.buyer.get('name', '')}", markup=False)
    screen.print(table("", ("day", "job", "what", "amount"), rows, right=("amount",)))
    tax = f", of it {_show(found, found.tax)} tax ({found.tax_bps / 100:g} %)" if found.tax_bps else ""
    screen.print(f"total {_show(found, found.total)}{tax}", markup=False)


def save(
    invoice: Number,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file: .pdf or .csv (default: its number.pdf).")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write one invoice to a file, as PDF or CSV.

    Examples: souk invoices save 2026-000012; souk invoices save 2026-000012 --output november.csv
    """
    from jobs.client.output import notice, print_json
    from jobs.client.whole_file import save_whole

    with open_souk(server) as souk:
        found = _find(souk, invoice)
        path = output or Path(f"{found.number.replace('/', '-')}.pdf")
        format = path.suffix.removeprefix(".").lower()
        if format not in FORMATS:
            raise UsageMistake(f"--output {path}: its name ends in none of .{', .'.join(FORMATS)}.")
        save_whole(path, lambda into: souk.save_invoice(found.id, format=format, into=into))
    if as_json:
        print_json({"invoice": found.number, "file": str(path)})
    else:
        notice(f"{found.kind} {found.number} is in {path}.")


def _find(souk: Souk, text: str) -> InvoiceView:
    rows = souk.invoices()
    return find_row(
        rows, text, names=lambda each: {each.number, str(each.id)}, what="invoice", listing="souk invoices list"
    )


def _show(invoice: InvoiceView, units: int) -> str:
    from jobs.payment.terms import show_units

    return show_units(units, asset=invoice.asset, scale=invoice.scale)
