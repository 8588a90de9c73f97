"""metrics: what a job's program reported of its training, and what its nodes measured while it ran."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from jobs.client.commands.options import JobName, Json, Server, find_job, open_souk
from jobs.client.errors import UsageMistake
from jobs.client.exports.formats import Format

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
    export: Annotated[
        Format | None, typer.Option("--export", help="Write the whole curve into --into as this tool reads it.")
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="A new or empty folder for --export.", show_default=False)
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how a job's training goes, and what its nodes measured of it. Nothing is billed by these figures.

    First what its program reported of the whole run: the loss and other series, each drawn from its first step to its
    newest. Then processor, memory and GPUs by the job's nodes since --since: figures of a minute are kept for some
    hours, then those of an hour. --json has every point of both.

    --export writes the curve of the whole run, of all attempts, for another tool, and shows nothing: a table, event
    files of TensorBoard, an offline run of Weights & Biases, or a file store of MLflow. Nothing is sent anywhere.

    Examples: souk metrics tiny-llama; souk metrics tiny-llama --since 2d --json | jq .curve.series;
    souk metrics tiny-llama --export tensorboard --into runs/tiny-llama
    """
    if (export is None) != (into is None):
        raise UsageMistake("--export and --into go together: --export csv --into FOLDER.")
    if export is not None and into is not None:
        _export(job, export, into, server)
        return
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


def _export(job: str, chosen: Format, folder: Path, server: str | None) -> None:
    from jobs.client.exports.formats import check_writable, export
    from jobs.client.exports.run import Run
    from jobs.client.output import console

    check_writable(chosen, folder)
    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        run = Run(job_id, souk.job(job_id).name, souk.curve(job_id))
    console().print(export(run, chosen, folder), markup=False, soft_wrap=True)


def _moment(text: str) -> datetime:
    from jobs.spec.units import parse_duration

    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise UsageMistake(f"--since {text}: {error}; write such as 30m, 6h or 2d.") from error
