"""artifacts, download, storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from jobs.client.commands.options import JobName, Json, Server, Yes, ask, find_job, open_souk
from jobs.client.errors import TransferFailed, UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import ArtifactView

PANEL = "Results"
GIB = 1024**3


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (artifacts, download, storage):
        app.command(rich_help_panel=PANEL)(command)


def artifacts(
    job: JobName,
    *,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="ARTIFACT", help="Delete the files of this one, by its id.")
    ] = None,
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List a job's checkpoints, outputs and prepared data, and until when each is kept; delete one of a job that has
    ended.

    Examples: souk artifacts tiny-llama; souk artifacts tiny-llama --delete 0193a1b2
    """
    from jobs.client.output import ago, console, print_json, size, table

    with open_souk(server) as souk:
        found = souk.artifacts(find_job(souk, job))
        if delete is not None:
            chosen = _of_id(found, delete)
            what = f"{chosen.kind} {chosen.artifact_id} ({size(chosen.size_bytes)})"
            if not yes and not ask(f"Delete the files of {what}?", as_json=as_json):
                return
            gone = souk.delete_artifact(chosen.artifact_id)
            print_json(gone) if as_json else console().print(f"The files of {what} were deleted.", markup=False)
            return
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("The job has no checkpoint and no output yet.", markup=False)
        return
    rows = [
        (
            str(artifact.artifact_id),
            artifact.kind,
            "-" if artifact.step is None else str(artifact.step),
            _state(artifact),
            str(artifact.file_count),
            size(artifact.size_bytes),
            ago(artifact.completed_at),
            f"{artifact.kept_until:%Y-%m-%d}" if artifact.kept_until else "-",
        )
        for artifact in found
    ]
    columns = ("id", "kind", "step", "state", "files", "size", "complete", "kept until")
    console().print(table("", columns, rows, right=("step", "files", "size")))


def download(
    job: JobName,
    *,
    into: Annotated[Path | None, typer.Option("--into", "-o", help="The folder; the job's name if not given.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="The newest complete output or checkpoint.")] = "output",
    artifact: Annotated[str | None, typer.Option("--artifact", help="This artifact instead, by its id.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Fetch a job's output, verify every file, continue where an earlier download stopped.

    Examples: souk download tiny-llama; souk download tiny-llama --kind checkpoint --into ckpt
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from jobs.client.download import download_artifact
    from jobs.client.output import console, print_json
    from jobs.client.results import missing_result

    with open_souk(server) as souk:
        job_id = find_job(souk, job)
        view = souk.job(job_id)
        if kind == "output" and artifact is None and (empty := missing_result(souk, view)):
            raise TransferFailed(empty)
        chosen = _choose(souk, job_id, kind, artifact)
        folder = into or Path(view.name)
        if as_json:
            paths = download_artifact(souk, chosen.artifact_id, folder, force=force)
            print_json({"artifact_id": str(chosen.artifact_id), "files": [str(path) for path in paths]})
            return
        columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=console()) as bar:
            task = bar.add_task("", total=chosen.size_bytes)
            paths = download_artifact(
                souk, chosen.artifact_id, folder, force=force, on_bytes=lambda count: bar.advance(task, count)
            )
    console().print(f"{len(paths)} files, each with its recorded SHA-256, in {folder}", markup=False)


def _of_id(found: list[ArtifactView], artifact: str) -> ArtifactView:
    """The one whose id begins so."""
    chosen = [row for row in found if str(row.artifact_id).startswith(artifact.lower())]
    if len(chosen) != 1:
        raise UsageMistake(f"{len(chosen)} artifacts of this job have an id that begins with {artifact!r}, not one.")
    return chosen[0]


def _state(artifact: ArtifactView) -> str:
    """Its state; of a checkpoint that nothing resumes from any more, while its files are there, that."""
    return "condemned" if artifact.state == "complete" and artifact.condemned_at else artifact.state


def storage(server: Server = None, as_json: Json = False) -> None:
    """Show how much your organisation keeps in the store, how much it may, and what that costs.

    Example: souk storage --json
    """
    from jobs.client.output import console, money, print_json

    with open_souk(server) as souk:
        found = souk.storage()
    if as_json:
        print_json(found)
        return
    kept, allowed, free = (n / GIB for n in (found.kept_bytes, found.allowed_bytes, found.free_bytes))
    lines = [f"kept      {kept:.2f} GiB of {allowed:.2f} GiB"]
    if found.usd_micros_per_gib_month:
        lines.append(f"price     {money(found.usd_micros_per_gib_month)} a GiB for 30 days, beyond {free:.2f} GiB")
    if found.charged_day is not None:
        how = "paid" if found.is_paid else "not covered by the balance, and not owed"
        lines.append(f"newest    {money(found.due_usd_micros)} for {found.charged_day}, {how}")
    lines.append(f"outputs   kept for {found.output_kept_days:g} days after their job")
    console().print("\n".join(lines), markup=False)


def _choose(souk: Souk, job_id: UUID, kind: str, artifact: str | None) -> ArtifactView:
    if kind not in ("output", "checkpoint"):
        raise UsageMistake(f"--kind is output or checkpoint, not {kind!r}.")
    found = [row for row in souk.artifacts(job_id) if row.state == "complete"]
    if artifact is not None:
        found = [row for row in found if str(row.artifact_id).startswith(artifact.lower())]
    else:
        found = [row for row in found if row.kind == kind and row.condemned_at is None]
    if not found:
        raise TransferFailed(f"The job has no complete {'artifact of that id' if artifact else kind} yet.")
    return max(found, key=lambda row: (row.step if row.step is not None else -1, row.created_at))
