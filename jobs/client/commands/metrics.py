"""metrics: what a job's program reported of its training, and what its nodes measured while it ran."""

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
    since: Annotated[
        str, typer.Option("--since", help="How far back the figures of nodes go, such as 30m, 6h or 2d.")
    ] = SINCE,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how a job's training goes, and what its nodes measured of it. Nothing is billed by these figures.

    First what its program reported of the whole run: the loss and other series, each drawn from its first step to its
    newest. Then processor, memory and GPUs by the job's nodes since --since: figures of a minute are kept for some
    hours, then those of an hour. --json has every point of both.

    Examples: souk metrics tiny-llama; souk metrics tiny-llama --since 2d --json | jq .curve.series
    """
    from jobs.client.output import console, print_json
    from jobs.client.views.curve import curve_view
    from jobs.client.views.metrics import metrics_view

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        found, curve = souk.metrics(job_id, since=_moment(since)), souk.curve(job_id)
    if as_json:
        print_json({**found.model_dump(mode="json"), "curve": curve})
        return
    shown = console()
    if curve.series:
        shown.print(curve_view(curve, shown))
        shown.print()
    if found.points:
        shown.print(metrics_view(found))
    else:
        text = f"No figures of the last {since} of its nodes: the job did not run, or began a moment ago."
        shown.print(text, markup=False)


def _moment(text: str) -> datetime:
    from jobs.spec.units import parse_duration

    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise UsageMistake(f"--since {text}: {error}; write such as 30m, 6h or 2d.") from error
