"""plan, launch, jobs, show, logs, cancel, resume."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from jobs.client.errors import SoukApiError, UsageMistake
from jobs.client.exit_codes import ExitCode
from jobs.client.options import JobFilePath, JobName, Json, Server, Yes, ask, find_job, open_souk

if TYPE_CHECKING:
    from jobs.client.launch import JobFile
    from jobs.client.sdk import Souk
    from jobs.wire import JobView, QuoteView

JOBS_SHOWN = 20
PANEL = "Jobs"


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (plan, launch, jobs, show, logs, cancel, resume):
        app.command(rich_help_panel=PANEL)(command)


def plan(file: JobFilePath, server: Server = None, as_json: Json = False) -> None:
    """Show where a job would run, what it would cost, and why not elsewhere.

    Example: souk plan examples/train-tiny-llama.yaml
    """
    from jobs.client.launch import read_job_file, require_fit
    from jobs.client.output import console, print_json
    from jobs.client.plan_view import plan_view

    spec = read_job_file(file)
    with open_souk(server) as souk:
        quote = souk.quote(spec)
    if as_json and quote.quote_id is not None:
        print_json(quote)
    elif not as_json:
        console().print(plan_view(quote))
    require_fit(quote)


def launch(
    file: JobFilePath,
    *,
    yes: Yes = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the job's id, and leave.")] = False,
    no_log: Annotated[bool, typer.Option("--no-log", help="Show progress without the log.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Check, quote, ask, send and submit a job; then watch it to its end. Ctrl-C leaves it running.

    Examples: souk launch job.yaml; souk launch job.yaml --yes --detach --json
    """
    from jobs.client.launch import explain_refusal, prepare, require_fit
    from jobs.client.output import console, print_json
    from jobs.client.plan_view import plan_view

    job_file = prepare(file)
    with open_souk(server) as souk:
        quote = souk.quote(job_file.spec)
        if not as_json:
            console().print(plan_view(quote))
        require_fit(quote)
        if not yes and not ask("Launch?", as_json=as_json):
            raise typer.Exit(ExitCode.OK)
        try:
            job = _submit(souk, job_file, quote, as_json=as_json)
        except SoukApiError as error:
            error.message = " ".join(part for part in (error.message, explain_refusal(error)) if part)
            raise
        if detach:
            if as_json:
                print_json({"type": "job", "job": job})
            else:
                console().print(f"Submitted {job.name} as {job.job_id}\n{_way_back(job.job_id)}", markup=False)
            return
        _watch(souk, job.job_id, as_json=as_json, with_log=not no_log)


def _submit(souk: Souk, job_file: JobFile, quote: QuoteView, *, as_json: bool) -> JobView:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from jobs.client.launch import submit
    from jobs.client.output import console

    size = sum(file.entry.size for file in job_file.files)
    if as_json or not job_file.files:
        return submit(souk, job_file, quote)
    with Progress(TextColumn("sending files"), BarColumn(), DownloadColumn(), console=console()) as bar:
        task = bar.add_task("", total=size)
        return submit(souk, job_file, quote, on_bytes=lambda count: bar.advance(task, count))


def _watch(souk: Souk, job_id: UUID, *, as_json: bool, with_log: bool) -> None:
    """To the job's end, which is the exit status; Ctrl-C says how to come back."""
    from jobs.client.job_states import STOPS
    from jobs.client.job_view import job_view
    from jobs.client.live import JsonWatcher, TerminalWatcher, watch
    from jobs.client.output import console, notice

    watcher = JsonWatcher() if as_json else TerminalWatcher(with_log=with_log)
    try:
        with watcher.shown():
            job = watch(souk, job_id, watcher)
    except KeyboardInterrupt:
        notice(f"\nDetached; the job goes on.\n{_way_back(job_id)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not as_json:
        console().print(job_view(job))
        if job.state == "completed":
            console().print(f"souk download {job_id}    fetches what it made\nsouk bill {job_id}    shows what it cost")
        if job.state == "paused":
            console().print(f"souk resume {job_id} --max-total DOLLARS    goes on with a higher budget", markup=False)
    raise typer.Exit(STOPS[job.state])


def jobs(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help=f"All jobs, not only the newest {JOBS_SHOWN}.")
    ] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List jobs, newest first.

    Example: souk jobs --all
    """
    from jobs.client.job_view import jobs_view
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = souk.jobs(limit=None if everything else JOBS_SHOWN)
    if as_json:
        print_json(found)
    elif found:
        console().print(jobs_view(found))
    else:
        console().print("No jobs yet. `souk launch FILE` submits one.")


def show(job: JobName, server: Server = None, as_json: Json = False) -> None:
    """Show where a job is, what it has cost, and each of its attempts.

    Example: souk show tiny-llama
    """
    from jobs.client.job_view import job_view
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = souk.job(find_job(souk, job))
    if as_json:
        print_json(found)
    else:
        console().print(job_view(found))


def logs(
    job: JobName,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    events: Annotated[bool, typer.Option("--events", help="The program's events instead of its log.")] = False,
    attempt: Annotated[int, typer.Option("--attempt", min=1, help="Begin at this attempt.")] = 1,
    node_rank: Annotated[int, typer.Option("--node-rank", min=0, help="Of a job on several nodes: which.")] = 0,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print a job's log, every attempt after the other, without gap or repeat.

    Examples: souk logs tiny-llama; souk logs -f 0192f3c1
    """
    from jobs.client.follow import Cursor, follow_stream
    from jobs.client.output import notice, print_json

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        cursor = Cursor(attempt=attempt)
        try:
            pages = follow_stream(
                souk, job_id, "events" if events else "logs", cursor=cursor, node_rank=node_rank, follow=follow
            )
            for number, text in pages:
                if as_json:
                    print_json({"attempt": number, "text": text})
                else:
                    sys.stdout.write(text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            notice(f"\nDetached; the job goes on.\n{_way_back(job_id)}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def cancel(job: JobName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Cancel a job in whatever state it is; what ran until then is billed.

    Example: souk cancel tiny-llama --yes
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        if not yes and sys.stdin.isatty() and not as_json and not ask(f"Cancel {job}?", as_json=False):
            raise typer.Exit(ExitCode.OK)
        found = souk.cancel(job_id)
    if as_json:
        print_json(found)
    else:
        console().print(
            f"{found.name} is {found.state}" + (" and being cancelled" if found.is_cancelling else ""), markup=False
        )


def resume(
    job: JobName,
    max_total: Annotated[
        str, typer.Option("--max-total", help="The new budget in all, in dollars.", show_default=False)
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Go on with a job that is paused because its budget was used up.

    Example: souk resume tiny-llama --max-total 5.00
    """
    from jobs.client.output import console, money, print_json
    from jobs.spec.units import parse_money

    try:
        amount = parse_money(max_total)
    except ValueError as error:
        raise UsageMistake(f"--max-total: {max_total!r} {error}; write dollars, such as 5.00") from error
    with open_souk(server) as souk:
        found = souk.resume(find_job(souk, job), max_total_usd_micros=amount)
    if as_json:
        print_json(found)
    else:
        console().print(f"{found.name} is {found.state}, with {money(found.cap_usd_micros)} in all", markup=False)


def _way_back(job_id: UUID) -> str:
    return f"souk logs -f {job_id}    comes back to it\nsouk cancel {job_id}    stops it"
