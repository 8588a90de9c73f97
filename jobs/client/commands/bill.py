"""bill, and provider earnings: what was charged and paid, and whether what was signed adds up to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.client.commands.options import Json, Server, find_job, open_souk
from jobs.client.errors import BillDoesNotVerify, UsageMistake

if TYPE_CHECKING:
    from jobs.client.verify.export import VerifiedExport

PANEL = "Jobs"

Job = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="A job's id, the beginning of it, or its name.", show_default=False),
]
Verify = Annotated[
    Path | None,
    typer.Option(
        "--verify", metavar="FILE", help="Check an exported file here: no server, no key.", show_default=False
    ),
]
ServerKey = Annotated[
    str | None,
    typer.Option(
        "--server-key",
        metavar="HEX",
        help="With --verify: the marketplace's public key, or its SHA-256, that must have signed.",
        show_default=False,
    ),
]
Export = Annotated[
    Path | None, typer.Option("--export", metavar="FILE", help="Write it with all receipts to this file, as JSON.")
]


def register(app: typer.Typer, provider: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(rich_help_panel=PANEL)(bill)
    provider.command("earnings")(earnings)


def bill(
    job: Job = None,
    *,
    verify: Verify = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Show it without checking the receipts.")] = False,
    export: Export = None,
    server_key: ServerKey = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what a job cost, and verify on this computer that the nodes' signed receipts add up to it.

    An exported bill proves itself: signatures, the chain of receipts, rate x time, caps, fees and sums are checked from
    the file alone. What is not true ends with status 10.

    Examples: souk bill tiny-llama

    souk bill tiny-llama --export bill.json

    souk bill --verify bill.json --server-key 5f1c...
    """
    if verify is not None:
        if job or export or no_verify:
            raise UsageMistake("--verify takes a file alone; to verify a job's bill of now, give only the job.")
        _verify_file(verify, server_key, as_json=as_json)
        return
    if job is None:
        raise UsageMistake("Which job? Give its id or name, or --verify FILE.")
    if server_key is not None:
        raise UsageMistake("--server-key goes with --verify FILE.")
    _show_bill(job, export, server, is_checked=not no_verify, as_json=as_json)


def earnings(
    *,
    verify: Verify = None,
    export: Export = None,
    since: Annotated[str | None, typer.Option("--since", help="A day, such as 2026-11-01 (default: 30 days).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Before this day (default: now).")] = None,
    server_key: ServerKey = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what your leases earned, and verify on this computer that your nodes' receipts were paid in full.

    Examples: souk provider earnings --since 2026-11-01

    souk provider earnings --export november.json

    souk provider earnings --verify november.json
    """
    from jobs.client.verify.export import verify_export

    if verify is not None:
        if export or since or until:
            raise UsageMistake("--verify takes a file alone.")
        _verify_file(verify, server_key, as_json=as_json)
        return
    span = {"since": _day(since, "--since"), "until": _day(until, "--until")}
    with open_souk(server) as souk:
        document = souk.export_earnings(**span)
    if export is not None:
        _write(export, document)
    _print_result(verify_export(document, server_key=server_key), as_json=as_json)


def _show_bill(job: str, export: Path | None, server: str | None, *, is_checked: bool, as_json: bool) -> None:
    from jobs.client.output import console, print_json
    from jobs.client.verify.bill import verify_bill
    from jobs.client.views.bill import bill_view
    from jobs.wire import BillView

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        document = souk.export_bill(job_id) if export is not None else None
        found = BillView.model_validate(document["body"]) if document is not None else souk.bill(job_id)
    if found.job_id != job_id:
        raise BillDoesNotVerify(f"The server sent the bill of another job, {found.job_id}.")
    if export is not None and document is not None:
        _write(export, document)
    verification = verify_bill(found) if is_checked else None
    problem = verification.problem if verification else None
    if as_json and problem is None:
        print_json({"bill": found, "verified": verification is not None})
    elif not as_json:
        console().print(bill_view(found, verification))
    if problem is not None:
        raise BillDoesNotVerify(f"The bill does not verify: {problem}", {"bill": found.model_dump(mode="json")})


def _verify_file(path: Path, server_key: str | None, *, as_json: bool) -> None:
    from jobs.client.verify.export import read_export, verify_export

    _print_result(verify_export(read_export(path), server_key=server_key), as_json=as_json)


def _print_result(found: VerifiedExport, *, as_json: bool) -> None:
    """What a file says and whether it is true; raises BillDoesNotVerify where it is not."""
    from jobs.client.output import console, print_json
    from jobs.client.views.bill import export_view

    problem = found.verification.problem
    about: dict[str, Any] = {
        "format": found.kind,
        "server_public_key": found.server_public_key,
        "server_key_sha256": found.fingerprint,
        "is_pinned": found.is_pinned,
        "receipts": found.verification.receipts,
        "lines": found.verification.lines,
    }
    if not as_json:
        console().print(export_view(found))
    elif problem is None:
        print_json({**about, "verified": True, "body": found.view})
    if problem is not None:
        raise BillDoesNotVerify(f"It does not verify: {problem}", about)


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise UsageMistake(f"{path} cannot be written: {error.strerror}") from error


def _day(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageMistake(f"{option}: {text!r} is no day such as 2026-11-01.") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
