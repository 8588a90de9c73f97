"""disputes: list, show, open, answer, withdraw."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import JobName, Json, Server, Yes, ask, find_job, find_row, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from uuid import UUID

    from jobs.client.sdk import Souk
    from jobs.wire.documents import AttachmentView, DisputeView

PANEL = "Account"
DISPUTES = 30
DISPUTES_MAX = 10_000

disputes = typer.Typer(no_args_is_help=True, help="Contest what a lease cost, or answer as its provider.")

Which = Annotated[str, typer.Argument(metavar="DISPUTE", help="A dispute's id, or how it begins.")]
Text = Annotated[str, typer.Option("--text", help="What is wrong, in your words; both sides and the operator read it.")]
Attach = Annotated[
    list[Path] | None,
    typer.Option("--attach", help="A file whose hash proves later that it is the same one; it is not sent."),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(disputes, name="disputes", rich_help_panel=PANEL)
    for name, command in (
        ("list", list_disputes),
        ("show", show),
        ("open", open_dispute),
        ("answer", answer),
        ("withdraw", withdraw),
    ):
        disputes.command(name)(command)


def list_disputes(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=DISPUTES_MAX, help="At most so many.")] = DISPUTES,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List disputes that you are a side of, newest first.

    Example: souk disputes list
    """
    from jobs.client.output import amount, console, print_json, table

    with open_souk(server) as souk:
        found = souk.disputes(limit=limit)
        known = souk.assets() if found else []
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("No disputes. `souk disputes open JOB --text ...` contests what a job cost.", markup=False)
        return
    rows = [
        (
            str(each.id),
            each.side,
            each.state,
            amount(each.amount, each.asset, known),
            str(each.job_id),
            f"{each.opened_at:%Y-%m-%d %H:%M}",
        )
        for each in found
    ]
    columns = ("id", "you are", "state", "amount", "job", "opened (UTC)")
    console().print(table("", columns, rows, right=("amount",)))


def show(dispute: Which, server: Server = None, as_json: Json = False) -> None:
    """Show what both sides said, until when, and what was decided.

    Example: souk disputes show 0192f3c1
    """
    with open_souk(server) as souk:
        _print(souk, _find(souk, dispute), as_json=as_json)


def open_dispute(
    job: JobName,
    *,
    text: Text,
    lease: Annotated[
        str, typer.Option("--lease", help="The lease's id or how it begins, where the job was charged for several.")
    ] = "",
    attach: Attach = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Contest what a lease of a job cost, while its challenge window is open: its pay is frozen until it is decided.

    Examples: souk disputes open tiny-llama --text "the GPU was throttled" --attach steps.csv

    souk disputes open tiny-llama --lease 0192f3c1 --text "no output at all"
    """
    attachments = _attachments(attach)
    with open_souk(server) as souk:
        made = souk.open_dispute(_choose_lease(souk, find_job(souk, job), lease), text, attachments)
        _print(souk, made, as_json=as_json)


def answer(dispute: Which, *, text: Text, attach: Attach = None, server: Server = None, as_json: Json = False) -> None:
    """Answer a dispute about a lease of yours, as its provider; once, until the time that it names.

    Example: souk disputes answer 0192f3c1 --text "the log shows 300 steps" --attach node.log
    """
    attachments = _attachments(attach)
    with open_souk(server) as souk:
        _print(souk, souk.answer_dispute(_find(souk, dispute).id, text, attachments), as_json=as_json)


def withdraw(dispute: Which, *, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Withdraw a dispute that you opened: the provider is paid.

    Example: souk disputes withdraw 0192f3c1 --yes
    """
    with open_souk(server) as souk:
        found = _find(souk, dispute)
        if not yes and not ask(f"Withdraw dispute {found.id}, so that the provider is paid?", as_json=as_json):
            raise typer.Abort
        _print(souk, souk.withdraw_dispute(found.id), as_json=as_json)


def _print(souk: Souk, found: DisputeView, *, as_json: bool) -> None:
    from jobs.client.output import console, print_json
    from jobs.client.views.dispute import dispute_lines

    if as_json:
        print_json(found)
        return
    for line in dispute_lines(found, souk.assets()):
        console().print(line, markup=False)


def _find(souk: Souk, text: str) -> DisputeView:
    rows = souk.disputes(limit=DISPUTES_MAX)
    return find_row(rows, text, names=lambda each: {str(each.id)}, what="dispute", listing="souk disputes list")


def _choose_lease(souk: Souk, job_id: UUID, text: str) -> UUID:
    """The lease; without a text the only one that was charged. Raises UsageMistake where that is none or several."""
    leases = [lease for attempt in souk.job(job_id).attempts for lease in attempt.leases]
    if text:
        names = {"what": "lease", "listing": f"souk bill {job_id}"}
        return find_row(leases, text, names=lambda each: {str(each.lease_id)}, **names).lease_id
    charged = [lease for lease in leases if lease.charge_units or lease.charge_usd_micros]
    if not charged:
        raise UsageMistake("The job was not charged for any lease yet: there is nothing to contest.")
    if len(charged) > 1:
        ids = ", ".join(f"{lease.lease_id} on {lease.node_name}" for lease in charged)
        raise UsageMistake(f"The job was charged for {len(charged)} leases; say which one with --lease: {ids}")
    return charged[0].lease_id


def _attachments(paths: list[Path] | None) -> list[AttachmentView]:
    from jobs.wire.documents import AttachmentView

    made = []
    for path in paths or []:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UsageMistake(f"--attach {path} cannot be read: {error.strerror}") from error
        made.append(AttachmentView(name=path.name, sha256=digest))
    return made
