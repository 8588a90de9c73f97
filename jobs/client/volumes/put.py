"""Files become the newest version of a volume: whole, and only where it does not hold them already.

    1. compare   the newest version with the list of files: the same ones are not sent, and make no version
    2. send      as a job's files are sent, several parts at once (`jobs/client/upload.py`)
    3. put       the complete upload gets its name

A put that was cut off goes on in the next one of the same files: what arrived is kept for a day.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from jobs.client.errors import SoukApiError, UsageMistake
from jobs.client.sdk import Souk
from jobs.client.upload import FileToSend, forget_upload, upload_files
from jobs.wire import VolumeView
from jobs.wire.volumes import VERSIONS_MAX
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, file_name_mistake

PARTS_AT_ONCE = 4
MISTAKES_SHOWN_MAX = 5
NOT_FOUND = "volume_not_found"  # the code of `jobs.errors.VolumeNotFound`


def require_sound_paths(paths: Sequence[str]) -> None:
    """Raise UsageMistake, before anything is read, where the server would refuse a name or their number."""
    if not paths:
        raise UsageMistake("There is no file to put.")
    if len(paths) > FILES_PER_ARTIFACT_MAX:
        raise UsageMistake(
            f"{len(paths)} files are too many: a volume has at most {FILES_PER_ARTIFACT_MAX}. Put several of them into"
            " one file, such as a Parquet or JSONL file of some gigabytes."
        )
    mistakes = [f"{path!r} {mistake}" for path in paths if (mistake := file_name_mistake(path))]
    if mistakes:
        more = f"; and {len(mistakes) - MISTAKES_SHOWN_MAX} more" if len(mistakes) > MISTAKES_SHOWN_MAX else ""
        raise UsageMistake("; ".join(mistakes[:MISTAKES_SHOWN_MAX]) + more)


def find_volume(souk: Souk, name: str) -> VolumeView | None:
    """The volume of this name, or None: there is none yet."""
    try:
        return souk.volume(name)
    except SoukApiError as error:
        if error.code != NOT_FOUND:
            raise
        return None


def holds_already(souk: Souk, volume: VolumeView | None, files: Sequence[FileToSend]) -> bool:
    """Whether the volume's newest version is these very files."""
    newest = volume.versions[0] if volume is not None and volume.versions else None
    if newest is None or newest.state != "complete" or newest.file_count != len(files):
        return False
    there = {(file.path, file.size, file.sha256) for file in souk.artifact(newest.artifact_id).files}
    return there == {(file.entry.path, file.entry.size, file.entry.sha256) for file in files}


def require_place(name: str, volume: VolumeView | None) -> None:
    """Raise UsageMistake, before anything is sent, where the volume has as many versions as it may have."""
    if volume is not None and len(volume.versions) >= VERSIONS_MAX:
        raise UsageMistake(
            f"{name} has {len(volume.versions)} versions, and a volume has at most {VERSIONS_MAX}. `souk volumes delete"
            f" {name} --version N` deletes an old one; `souk volumes show {name}` lists them."
        )


def put_files(
    souk: Souk,
    name: str,
    files: Sequence[FileToSend],
    *,
    source: str = "",
    on_bytes: Callable[[int], None] = lambda _: None,
) -> VolumeView:
    """Send the files, and make them the newest version of the volume; raises TransferFailed."""
    artifact_id = upload_files(souk, files, on_bytes=on_bytes, parts_at_once=PARTS_AT_ONCE)
    volume = souk.put_volume(name, artifact_id=artifact_id, source=source, idempotency_key=str(uuid4()))
    forget_upload(souk, files)
    return volume
