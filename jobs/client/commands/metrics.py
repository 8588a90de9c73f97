"""metrics: what the nodes of a job measured while it ran."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from jobs.client.commands.options import JobName, Json, Server, find_job, open_souk
from jobs.client.errors import UsageMistake

PANEL = "Jobs"
SINCE = "1h"


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command(rich_help_panel=PANEL)(metrics)


def metrics(
    job: JobName,
    *,
    since: Annotated[str, typer.Option("--since", help="How far back, such as 30m, 6h or 2d.")] = SINCE,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what a job's nodes measured of it: processor, memory, GPUs. Nothing is billed by these figures.

    Figures of a minute are kept for some hours, then those of an hour. Each series is one line: its newest figure, its
    mean and its highest since then; --json has every point.

    Examples: souk metrics tiny-llama; souk metrics tiny-llama --since 2d --json
    """
    from jobs.client.output import console, print_json
    from jobs.client.views.metrics import metrics_view

    with open_souk(server) as souk:
        found = souk.metrics(find_job(souk, job), since=_moment(since))
    if as_json:
        print_json(found)
    elif not found.points:
        console().print(f"No figures of the last {since}: the job did not run, or began a moment ago.", markup=False)
    else:
        console().print(metrics_view(found))


def _moment(text: str) -> datetime:
    from jobs.spec.units import parse_duration

    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise UsageMistake(f"--since {text}: {error}; write such as 30m, 6h or 2d.") from error
