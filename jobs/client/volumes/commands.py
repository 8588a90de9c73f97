"""volumes put, list, show, get, delete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import Json, Server, Yes, ask, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.client.upload import FileToSend
    from jobs.client.volumes.s3 import S3File
    from jobs.wire import VolumeVersionView, VolumeView

PANEL = "Results"
S3_SCHEME = "s3://"
NO_RESULT = "result_not_ready"  # the code of `jobs.errors.ResultNotReady`
NAMES = "1 to 63 small letters, digits and -, not beginning with -"

volumes = typer.Typer(no_args_is_help=True, help="Named folders of data in the store, put once and used by many jobs.")

VolumeArgument = Annotated[str, typer.Argument(metavar="NAME", help="The volume's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for name, command in (("put", put), ("list", list_volumes), ("show", show), ("get", get), ("delete", delete)):
        volumes.command(name)(command)
    app.add_typer(volumes, name="volumes", rich_help_panel=PANEL)


def put(
    name: VolumeArgument,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Files and folders, or one s3://bucket/prefix.", show_default=False),
    ] = None,
    *,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="What a job left becomes the volume; no bytes move. Its id, or its name: of the last that completed.",
        ),
    ] = None,
    endpoint_url: Annotated[
        str | None,
        typer.Option("--endpoint-url", metavar="URL", envvar="AWS_ENDPOINT_URL_S3", help="Of an S3 that is not AWS's."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make files the newest version of a volume. Jobs that were submitted before keep the version they have.

    A file is put under its own name, a folder as what it holds. From S3 the bytes stream through this computer, with
    your own credentials, which go nowhere else. A put that was cut off goes on where it stopped.

    Examples: souk volumes put corpus data/; souk volumes put corpus train.jsonl test.jsonl

    souk volumes put corpus s3://my-bucket/corpus; souk volumes put tuned --job my-training
    """
    from jobs.client.output import console, print_json

    _require_name(name)
    if job is not None and not _is_name(job):
        raise UsageMistake(f"{job!r} is no job's id, and no name: {NAMES}.")
    given = paths or []
    if bool(given) == (job is not None):
        raise UsageMistake("Name files, folders or an s3:// address, or a job by --job; not both.")
    of_s3 = [path for path in given if path.startswith(S3_SCHEME)]
    if of_s3 and len(given) > 1:
        raise UsageMistake("One s3:// address alone makes a version; files of this computer make another.")
    with open_souk(server) as souk:
        if job is not None:
            made = _put_result(souk, name, job)
        elif of_s3:
            made = _put_s3(souk, name, of_s3[0], endpoint_url, as_json=as_json)
        else:
            made = _put_local(souk, name, given, as_json=as_json)
    print_json(made) if as_json else console().print(_sentence(made), markup=False)


def _put_result(souk: Souk, name: str, job: str) -> VolumeView:
    from jobs.client.errors import SoukApiError

    try:
        return souk.put_volume(name, job=job, source=f"job {job}")
    except SoukApiError as error:
        if error.code == NO_RESULT:
            raise UsageMistake(str(error)) from error
        raise


def _put_local(souk: Souk, name: str, paths: Sequence[str], *, as_json: bool) -> VolumeView:
    from jobs.client.gather import gather_folders
    from jobs.client.ignoring import explain_left_out
    from jobs.client.output import notice
    from jobs.client.volumes.put import require_sound_paths

    gathered = gather_folders([Path(path) for path in paths])
    if gathered.left_out:
        notice(explain_left_out(gathered.left_out))
    require_sound_paths([file.entry.path for file in gathered.files])
    return _send(souk, name, gathered.files, ", ".join(paths), as_json=as_json)


def _put_s3(souk: Souk, name: str, address: str, endpoint_url: str | None, *, as_json: bool) -> VolumeView:
    try:
        from jobs.client.volumes.s3 import S3Source, parse_address
    except ImportError as error:
        raise UsageMistake(f"s3:// needs {error.name or 'boto3'}: pip install 'gpusouk[s3]'") from error

    source = S3Source(parse_address(address), endpoint_url=endpoint_url)
    found = source.list_objects()
    with _bar("reading", sum(each.size for each in found), as_json=as_json) as on_bytes:
        files: list[S3File] = source.hash_objects(found, on_bytes=on_bytes)
    made = _send(souk, name, files, str(source.address), as_json=as_json)
    source.known().forget()
    return made


def _send(souk: Souk, name: str, files: Sequence[FileToSend], source: str, *, as_json: bool) -> VolumeView:
    """What the volume holds already is neither sent nor a new version."""
    from jobs.client.output import notice
    from jobs.client.volumes.put import find_volume, holds_already, put_files, require_place
    from jobs.wire.volumes import SOURCE_CHARACTERS_MAX

    there = find_volume(souk, name)
    if there is not None and holds_already(souk, there, files):
        notice(f"{name} holds these files already: nothing was sent.")
        return there
    require_place(name, there)
    shown = "".join(each for each in source if each.isprintable())[:SOURCE_CHARACTERS_MAX]
    with _bar("sending", sum(file.entry.size for file in files), as_json=as_json) as on_bytes:
        return put_files(souk, name, files, source=shown, on_bytes=on_bytes)


@contextmanager
def _bar(what: str, size: int, *, as_json: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, and how it is moved on; none with --json."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from jobs.client.output import console, notice

    try:
        if as_json:
            yield lambda _: None
            return
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(TextColumn(what), *columns, console=console()) as bar:
            task = bar.add_task("", total=size)
            yield lambda count: bar.advance(task, count)
    except KeyboardInterrupt:
        notice("What arrived is kept for a day: the same command goes on where this one stopped.")
        raise


def list_volumes(server: Server = None, as_json: Json = False) -> None:
    """List your organisation's volumes, each with its newest version.

    Example: souk volumes list --json
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, print_json, size, table

    with open_souk(server) as souk:
        found = souk.volumes()
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("There is no volume yet: `souk volumes put NAME PATH` makes one.", markup=False)
        return
    rows = [
        (
            each.name,
            str(newest.number),
            str(newest.file_count),
            size(newest.size_bytes),
            ago(newest.created_at),
            str(newest.living_jobs),
            escape(newest.source) or "-",
        )
        for each in found
        for newest in each.versions[:1]
    ]
    columns = ("name", "version", "files", "size", "put", "living jobs", "from")
    console().print(table("", columns, rows, right=("version", "files", "size", "living jobs")))


def show(name: VolumeArgument, server: Server = None, as_json: Json = False) -> None:
    """Show a volume's versions, newest first: where each comes from, and how many living jobs have it.

    Example: souk volumes show corpus
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, print_json, size, table

    _require_name(name)
    with open_souk(server) as souk:
        found = souk.volume(name)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            str(each.number),
            each.state,
            str(each.file_count),
            size(each.size_bytes),
            ago(each.created_at),
            ago(each.superseded_at),
            str(each.living_jobs),
            escape(each.source) or "-",
        )
        for each in found.versions
    ]
    columns = ("version", "state", "files", "size", "put", "superseded", "living jobs", "from")
    console().print(table("", columns, rows, right=("version", "files", "size", "living jobs")))
    console().print(f"\nIn a job file:  inputs: {{{name}: {{volume: {name}}}}}", markup=False)


def get(
    name: VolumeArgument,
    *,
    version: Annotated[int | None, typer.Option("--version", min=1, help="This one; the newest if not given.")] = None,
    into: Annotated[Path | None, typer.Option("--into", "-o", help="The folder; its name if not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Fetch a volume's files, verify every one, continue where an earlier command stopped.

    Examples: souk volumes get corpus; souk volumes get corpus --version 3 --into old
    """
    from jobs.client.download import download_artifact
    from jobs.client.output import console, print_json

    _require_name(name)
    with open_souk(server) as souk:
        chosen = _version_of(souk.volume(name), version)
        folder = into or Path(name)
        with _bar("fetching", chosen.size_bytes, as_json=as_json) as on_bytes:
            files = download_artifact(souk, chosen.artifact_id, folder, force=force, on_bytes=on_bytes)
    if as_json:
        print_json({"name": name, "version": chosen.number, "files": [str(path) for path in files]})
        return
    console().print(f"{len(files)} files, each with its recorded SHA-256, in {folder}", markup=False)


def delete(
    name: VolumeArgument,
    *,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="This one alone, which a newer one has superseded.")
    ] = None,
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Delete a volume with all its versions, or one old version. Jobs that have it keep it until they have ended.

    Examples: souk volumes delete corpus; souk volumes delete corpus --version 3 --yes
    """
    from jobs.client.output import console, print_json, size

    _require_name(name)
    with open_souk(server) as souk:
        found = souk.volume(name)
        chosen = found.versions if version is None else [_version_of(found, version)]
        what = name if version is None else f"version {version} of {name}"
        total = size(sum(each.size_bytes for each in chosen if each.state == "complete"))
        if not yes and not ask(f"Delete {what} ({total})?", as_json=as_json):
            return
        gone = souk.delete_volume(name, version=version)
    print_json(gone) if as_json else console().print(f"{what} was deleted ({total}).", markup=False)


def _is_name(text: str) -> bool:
    from jobs.wire.volumes import VOLUME_NAME

    return re.fullmatch(VOLUME_NAME, text) is not None


def _require_name(name: str) -> None:
    if not _is_name(name):
        raise UsageMistake(f"{name!r} is no volume's name: {NAMES}.")


def _version_of(volume: VolumeView, number: int | None) -> VolumeVersionView:
    """The version with this number, or the newest; raises UsageMistake for none."""
    found = next((each for each in volume.versions if number in (None, each.number)), None)
    if found is None:
        there = ", ".join(str(each.number) for each in volume.versions)
        raise UsageMistake(f"{volume.name} has no version {number}; it has {there or 'none'}.")
    if found.state != "complete":
        raise UsageMistake(f"The files of version {found.number} were deleted, as nobody paid for keeping them.")
    return found


def _sentence(made: VolumeView) -> str:
    from jobs.client.output import size

    newest = made.versions[0]
    files = "1 file" if newest.file_count == 1 else f"{newest.file_count} files"
    return (
        f"{made.name} is at version {newest.number}: {files}, {size(newest.size_bytes)}.\n"
        f"In a job file:  inputs: {{{made.name}: {{volume: {made.name}}}}}"
    )
