"""`souk ledger`: is the money right, and where is it?"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marketplace.config.commands import ledger_corrections
from marketplace.config.commands.ledger_setup import Data, Json, set_up

if TYPE_CHECKING:
    from billing.books.verify import VerifyReport

app = typer.Typer(help="The operator's view of the ledger: verify it, show what the accounts hold.")
app.add_typer(ledger_corrections.app)


@app.command("verify")
def verify_ledger(as_json: Json = False, data: Data = None) -> None:
    """Recompute every sum, hash, digest, hold, deposit, settlement and receipt; exit status 1 if anything is wrong.

    Example: souk ledger verify --data ~/.souk
    """
    set_up(data)
    from billing.books.verify import verify

    with _progress(is_shown=not as_json and sys.stderr.isatty()) as on_progress:
        report = verify(on_progress)
    if as_json:
        typer.echo(json.dumps(_as_json(report), indent=2))
    else:
        typer.echo(f"{report.accounts} accounts, {report.transfers} transfers, {report.sealed} of them sealed.")
        typer.echo(f"{report.receipts} receipts, every signature checked.")
        typer.echo(f"Head of the hash chain: {report.head}; of the events' chain: {report.events_head}")
        for totals in report.totals:
            off = totals.credits_posted - totals.debits_posted
            typer.echo(f"{totals.asset}: debits {totals.debits_posted}, credits {totals.credits_posted}, sum {off}")
        for problem in report.problems:
            typer.echo(f"WRONG ({problem.check}) {problem.subject} {problem.id}: {problem.message}", err=True)
        typer.echo("The ledger is true." if report.is_true else f"{len(report.problems)} problems.")
    raise typer.Exit(0 if report.is_true else 1)


@app.command("show")
def show_ledger(as_json: Json = False, data: Data = None) -> None:
    """What the accounts hold, by kind; the balances of one asset add up to zero.

    Example: souk ledger show --json
    """
    set_up(data)
    from billing.books.balances import balances_by_kind
    from billing.models.ledger import USD_ASSET_CODE
    from billing.money import format_usd

    rows = balances_by_kind()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) | {"balance": str(row.balance)} for row in rows], indent=2))
        return
    for row in rows:
        amount = format_usd(row.balance) if row.asset == USD_ASSET_CODE else str(row.balance)
        typer.echo(f"{row.asset:5} {row.kind:20} {row.accounts:7} accounts {amount:>20}")
    for asset in sorted({row.asset for row in rows}):
        typer.echo(f"{asset:5} {'sum':20} {'':16} {sum(row.balance for row in rows if row.asset == asset):>20}")


@app.command("seal")
def seal_ledger(data: Data = None) -> None:
    """Extend the hash chains over every transfer and event that is final; the scheduled tasks do the same.

    Example: souk ledger seal
    """
    set_up(data)
    from billing.books.hash_chain import chain_transfers
    from marketplace.foundation.event_seals import seal_events

    typer.echo(f"{chain_transfers()} transfers sealed, {seal_events()} events.")


@app.command("reconcile")
def reconcile_ledger(as_json: Json = False, data: Data = None) -> None:
    """Hold the ledger against the outside, rail by rail; exit status 1 if something differs or a rail is silent.

    A difference that nothing explains stops payouts, as the hourly reconciliation would.

    Example: souk ledger reconcile
    """
    set_up(data)
    from billing import breaker
    from billing.reconciliation.reconciling import reconcile, show

    report = reconcile(reason="by hand")
    if as_json:
        stopped = {"payouts_stopped": breaker.is_open()}
        typer.echo(json.dumps(show(report) | stopped, indent=2))
        raise typer.Exit(0 if report.is_clean else 1)
    for position in report.positions.select_related("asset").order_by("rail", "kind", "asset"):
        here, outside = position.asset.show(position.ledger), position.asset.show(position.outside)
        typer.echo(f"{position.rail:8} {position.kind:20} {here} here, {outside} outside")
    for difference in report.differences.order_by("pk"):
        why = difference.explanation or "NOTHING EXPLAINS IT"
        line = f"{difference.kind} {difference.rail} {difference.ref}: {difference.ledger} here, "
        typer.echo(f"{line}{difference.outside} outside; {why}", err=not difference.explanation)
    for rail, why in report.unanswered.items():
        typer.echo(f"{rail} did not answer: {why}", err=True)
    typer.echo("Ledger and outside agree." if report.is_clean else f"{report.unexplained} unexplained differences.")
    if breaker.is_open():
        typer.echo("Payouts are stopped until an operator closes the breaker in the admin.", err=True)
    raise typer.Exit(0 if report.is_clean else 1)


@app.command("grants")
def show_grants(role: Annotated[str, typer.Argument(help="The role that the servers connect as.")]) -> None:
    """SQL that lets a role run the marketplace and rewrite nothing that was posted; run it as the tables' owner.

    Example: souk ledger grants souk_app | psql "$OWNERS_DATABASE_URL"
    """
    set_up(None)
    from billing.books.sql_privileges import privileges_for

    try:
        typer.echo(privileges_for(role), nl=False)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar a kind of rows, on a terminal only."""
    if not is_shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done)

        yield show


def _as_json(report: VerifyReport) -> dict[str, Any]:
    """The report with its verdict, and its amounts as strings: they outgrow what JSON readers count exactly."""
    totals = [
        {name: value if name == "asset" else str(value) for name, value in dataclasses.asdict(one).items()}
        for one in report.totals
    ]
    sums = {one.asset: str(one.credits_posted - one.debits_posted) for one in report.totals}
    return dataclasses.asdict(report) | {"is_true": report.is_true, "totals": totals, "sums": sums}
