"""Which lists of files are accepted: names that no file system misreads, sizes within limits; mistakes are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jobs.artifacts.store import FILE_BYTES_MAX
from jobs.errors import BadManifest
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, PATH_DEPTH_MAX, ArtifactFile, file_name_mistake

ARTIFACT_BYTES_MAX = 2 * 1024**4
ERRORS_SHOWN_MAX = 50


def accept_files(files: Sequence[ArtifactFile], *, may_be_empty: bool = False) -> list[dict[str, Any]]:
    """The files as an artifact's part keeps them; raises BadManifest with every mistake, at most fifty."""
    errors = list(_mistakes_of(files, may_be_empty=may_be_empty))
    if errors:
        raise BadManifest(errors=errors[:ERRORS_SHOWN_MAX], count=len(errors))
    return [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files]


def _mistakes_of(files: Sequence[ArtifactFile], *, may_be_empty: bool) -> Iterator[str]:
    if not files and not may_be_empty:
        yield "There are no files."
    if len(files) > FILES_PER_ARTIFACT_MAX:
        yield f"There are {len(files)} files; the most is {FILES_PER_ARTIFACT_MAX}."
    if sum(file.size for file in files) > ARTIFACT_BYTES_MAX:
        yield f"The files have more than {ARTIFACT_BYTES_MAX} bytes in all."
    seen: dict[str, str] = {}
    for file in files:
        if mistake := file_name_mistake(file.path):
            yield f"{file.path!r} {mistake}."
        if file.size > FILE_BYTES_MAX:
            yield f"{file.path!r} has more than {FILE_BYTES_MAX} bytes."
        folded = file.path.casefold()
        if folded in seen:
            yield f"{file.path!r} and {seen[folded]!r} are the same name on some file systems."
        seen[folded] = file.path
    yield from _files_that_are_folders(seen)


def _files_that_are_folders(seen: dict[str, str]) -> Iterator[str]:
    for folded, path in seen.items():
        names = folded.split("/")
        for depth in range(1, min(len(names), PATH_DEPTH_MAX)):
            folder = "/".join(names[:depth])
            if folder in seen:
                yield f"{seen[folder]!r} is a file, and {path!r} needs it to be a folder."
