"""topups; refunds: list, create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import Json, Server, Yes, ask, find_row, open_souk, read_dollars

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire.topups import TopUpView

PANEL = "Account"
TOPUPS = 30
TOPUPS_MAX = 10_000

refunds = typer.Typer(no_args_is_help=True, help="Have unspent balance back on the card that paid it in.")

Which = Annotated[str, typer.Argument(metavar="TOP-UP", help="A top-up's id, or how it begins: `souk topups`.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(rich_help_panel=PANEL)(topups)
    app.add_typer(refunds, name="refunds", rich_help_panel=PANEL)
    for name, command in (("list", list_refunds), ("create", create)):
        refunds.command(name)(command)


def topups(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=TOPUPS_MAX, help="At most so many.")] = TOPUPS,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List payments by card, newest first.

    Example: souk topups --limit 5
    """
    from rich.markup import escape

    from jobs.client.output import console, money, print_json, table

    with open_souk(server) as souk:
        found = souk.top_ups(limit=limit)
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("Nothing was paid in by card yet. `souk topup 25` does.", markup=False)
        return
    rows = [
        (
            str(each.id),
            f"{each.created_at:%Y-%m-%d %H:%M}",
            money(each.amount_usd_micros),
            each.method,
            each.state,
            escape(each.message),
        )
        for each in found
    ]
    columns = ("top-up", "when (UTC)", "amount", "by", "state", "why not")
    console().print(table("", columns, rows, right=("amount",)))


def list_refunds(top_up: Which, server: Server = None, as_json: Json = False) -> None:
    """List what of a top-up was sent back.

    Example: souk refunds list 0192f3c1
    """
    from rich.markup import escape

    from jobs.client.output import console, money, print_json, table

    with open_souk(server) as souk:
        found = souk.refunds(_find(souk, top_up).id)
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("Nothing of it was sent back. `souk refunds create` does.", markup=False)
        return
    rows = [
        (f"{each.created_at:%Y-%m-%d %H:%M}", money(each.amount_usd_micros), each.state, escape(each.message))
        for each in found
    ]
    console().print(table("", ("when (UTC)", "amount", "state", "why not"), rows, right=("amount",)))


def create(
    top_up: Which,
    *,
    amount: Annotated[
        str, typer.Option("--amount", help="Dollars, in whole cents (default: all of it that is unspent).")
    ] = "",
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Send unspent balance back to the card that a top-up came from.

    Examples: souk refunds create 0192f3c1; souk refunds create 0192f3c1 --amount 12.50 --yes
    """
    from jobs.client.output import console, money, print_json

    units = read_dollars(amount, "--amount") if amount else None
    with open_souk(server) as souk:
        found = _find(souk, top_up)
        what = money(units) if units is not None else "all that is left"
        if not yes and not ask(f"Send {what} of {money(found.amount_usd_micros)} back to the card?", as_json=as_json):
            raise typer.Abort
        made = souk.refund(found.id, usd_micros=units)
    if as_json:
        print_json(made)
        return
    why = f": {made.message}" if made.message else "; banks take some days."
    console().print(f"{money(made.amount_usd_micros)} go back to the card ({made.state}){why}", markup=False)


def _find(souk: Souk, text: str) -> TopUpView:
    rows = souk.top_ups(limit=TOPUPS_MAX)
    return find_row(rows, text, names=lambda each: {str(each.id)}, what="top-up", listing="souk topups")
