"""jobs, show, wait, logs, cancel, retry, resume, confirm-price."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from jobs.client.commands.launch import scale_of, way_back
from jobs.client.commands.options import JobName, Json, Server, Yes, ask, find_job, open_souk
from jobs.client.errors import UsageMistake
from jobs.client.exit_codes import ExitCode

JOBS_SHOWN = 20
WAIT_SECONDS = 2.0  # between two looks at the job
PANEL = "Jobs"


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (jobs, show, wait, logs, cancel, retry, resume, confirm_price):
        app.command(rich_help_panel=PANEL)(command)


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
    from jobs.client.output import console, print_json
    from jobs.client.views.job import jobs_view

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
    from jobs.client.output import console, notice, print_json
    from jobs.client.results import missing_result
    from jobs.client.views.job import job_view

    with open_souk(server) as souk:
        found = souk.job(find_job(souk, job))
        scale = None if as_json else scale_of(souk, found)
        empty = missing_result(souk, found)
    if as_json:
        print_json(found)
    else:
        console().print(job_view(found, scale=scale))
    if empty:
        notice(empty)


def wait(job: JobName, server: Server = None, as_json: Json = False) -> None:
    """Wait until a job has ended or is paused, and leave with the exit status that says how.

    Examples: souk wait tiny-llama; souk wait 0192f3c1 --json
    """
    from jobs.client.job_states import STOPS
    from jobs.client.output import notice, print_json
    from jobs.client.results import missing_result

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        found, shown = souk.job(job_id), ""
        while found.state not in STOPS:
            now = f"{found.name} is {found.state}. {found.waiting_for}".strip()
            if now != shown and not as_json:
                notice(now)
            shown = now
            time.sleep(WAIT_SECONDS)
            found = souk.job(job_id)
        empty = missing_result(souk, found)
    if as_json:
        print_json(found)
    else:
        notice(f"{found.name} {found.state}" + (f": {found.message}" if found.message else ""))
    if empty:
        notice(empty)
    raise typer.Exit(STOPS[found.state])


def logs(
    job: JobName,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    events: Annotated[bool, typer.Option("--events", help="The program's events instead of its log.")] = False,
    attempt: Annotated[int, typer.Option("--attempt", min=1, help="Begin at this attempt.")] = 1,
    node_rank: Annotated[int, typer.Option("--node-rank", min=0, help="The node, of a job on several nodes.")] = 0,
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
            notice(f"\nDetached; the job goes on.\n{way_back(job_id)}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def cancel(job: JobName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Cancel a job in any state; what ran until then is billed.

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


def retry(job: JobName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Do a job that has ended again: the same spec and files, at the prices of now, within the same budget.

    Example: souk retry tiny-llama --yes
    """
    from jobs.client.output import console, money, print_json

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        before = souk.job(job_id)
        question = f"Do {before.name} again, for at most {money(before.cap_usd_micros)}?"
        if not yes and not ask(question, as_json=as_json):
            raise typer.Exit(ExitCode.OK)
        found = souk.retry(job_id)
    if as_json:
        print_json(found)
    else:
        console().print(f"Submitted {found.name} again as {found.job_id}\n{way_back(found.job_id)}", markup=False)


def resume(
    job: JobName,
    max_total: Annotated[
        str, typer.Option("--max-total", help="The new total budget, in dollars.", show_default=False)
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Resume a job that is paused because its budget was used up.

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


def confirm_price(job: JobName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Agree to a lower price of the token that pays for a job, if the job waits for that.

    The job holds more of the token then, for the same dollars; `souk show` says how much.

    Examples: souk confirm-price tiny-llama; souk confirm-price tiny-llama --yes --json
    """
    from jobs.client.output import console, money, print_json
    from jobs.payment.terms import show_units

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        found = souk.job(job_id)
        change = found.price_change
        if change is None or change.usd_micros_per_token is None or not change.can_confirm:
            raise UsageMistake(f"{found.name} waits for no price confirmation. " + found.waiting_for)
        more = (change.cap_units_after or 0) - change.cap_units
        shown = show_units(more, asset=change.asset, scale=change.asset_scale)
        prices = f"{money(change.locked_usd_micros_per_token)} to {money(change.usd_micros_per_token)}"
        question = f"{found.asset} fell from {prices}: hold {shown} more for the same dollars?"
        if not yes and not ask(question, as_json=as_json):
            raise typer.Exit(ExitCode.OK)
        found = souk.confirm_price(job_id, usd_micros_per_token=change.usd_micros_per_token)
    if as_json:
        print_json(found)
    else:
        console().print(f"{found.name} is {found.state}, and goes on at the new price", markup=False)
