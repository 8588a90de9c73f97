"""Which lists of files are accepted: names that no file system misreads, sizes within limits; mistakes are named."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobs.artifacts.store import FILE_BYTES_MAX
from jobs.errors import BadManifest
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, ArtifactFile

ARTIFACT_BYTES_MAX = 2 * 1024**4
PATH_DEPTH_MAX = 32
NAME_BYTES_MAX = 255  # of one part of a path: what common file systems hold
ERRORS_SHOWN_MAX = 50
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # Unicode's categories of control and formatting characters

_PATH_RULES: list[tuple[Callable[[str], bool], str]] = [
    (lambda path: path.startswith("/") or path[1:2] == ":", "must be relative"),
    (lambda path: "\\" in path, "must use forward slashes"),
    (lambda path: any(unicodedata.category(one) in INVISIBLE for one in path), "holds control characters"),
    (lambda path: any(name in {"", ".", ".."} for name in path.split("/")), "holds an empty name, '.' or '..'"),
    (lambda path: path.count("/") >= PATH_DEPTH_MAX, f"is more than {PATH_DEPTH_MAX} folders deep"),
    (
        lambda path: any(len(name.encode()) > NAME_BYTES_MAX for name in path.split("/")),
        f"holds a name of more than {NAME_BYTES_MAX} bytes",
    ),
    (lambda path: unicodedata.normalize("NFC", path) != path, "is not in Unicode normal form C"),
]


def accept_files(files: Sequence[ArtifactFile], *, may_be_empty: bool = False) -> list[dict[str, Any]]:
    """The files as an artifact's part keeps them; raises BadManifest with every mistake, at most fifty."""
    errors = list(_mistakes_of(files, may_be_empty=may_be_empty))
    if errors:
        raise BadManifest(errors=errors[:ERRORS_SHOWN_MAX], count=len(errors))
    return [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files]


def path_mistake(path: str) -> str | None:
    """What is wrong with a file's name, or None."""
    return next((mistake for is_wrong, mistake in _PATH_RULES if is_wrong(path)), None)


def _mistakes_of(files: Sequence[ArtifactFile], *, may_be_empty: bool) -> Iterator[str]:
    if not files and not may_be_empty:
        yield "There are no files."
    if len(files) > FILES_PER_ARTIFACT_MAX:
        yield f"There are {len(files)} files; the most is {FILES_PER_ARTIFACT_MAX}."
    if sum(file.size for file in files) > ARTIFACT_BYTES_MAX:
        yield f"The files have more than {ARTIFACT_BYTES_MAX} bytes in all."
    seen: dict[str, str] = {}
    for file in files:
        if mistake := path_mistake(file.path):
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
