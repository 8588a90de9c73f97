"""Collects what a program made or changed beside `output/`, so that no result is lost by where it was written.

    1. record_given      before the program starts: every file that it is given, by size and time
    2. collect_beside    after it completed: regular files that are new or not as they were given, linked into the
                         snapshot of its output; returns what the customer's log is to say

Files are found and linked without following links, as in `snapshot.py`. What cannot be kept costs itself alone: it is
left out, and the log says so.
"""

from __future__ import annotations

import fnmatch
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from provider_agent.lease.snapshot import keep_file, open_below
from provider_agent.lease.workfolder import CHECKPOINT_NAME, CONFIG_NAME, EVENTS_NAME, OUTPUT_NAME, RESUME_NAME
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, file_name_mistake
from provider_agent.system.atomic import write_atomically

COLLECTED_BYTES_MAX = 10 * 1024**3  # of what no pattern of the job file names; output/ itself has no such limit
ENTRIES_MAX = 200_000  # files looked at beside output/
NAMES_SHOWN_MAX = 10
GIVEN_NAME = "given.json"  # beside the work folder, where the program does not reach
MOVED_TO = "work"  # for a file beside output/ whose name one in output/ has
OWN_FOLDERS = frozenset({OUTPUT_NAME, CHECKPOINT_NAME, RESUME_NAME})  # shipped by themselves, or given
OWN_FILES = frozenset({CONFIG_NAME, EVENTS_NAME})
CACHES = frozenset({"__pycache__"})
GIB = 1024**3

Mark = tuple[int, int]  # size, time of the last change in nanoseconds


@dataclass
class _Left:
    """Files that are left out for one reason."""

    why: str
    paths: list[str] = field(default_factory=list)

    def line(self) -> str:
        return f"left out {_named(self.paths)}: {self.why}"


def record_given(work: Path, lease_folder: Path) -> None:
    """Remember every file that the program finds in its work folder."""
    given = {path: _mark(found) for path, found, _ in _files(work, skipped=OWN_FOLDERS)}
    write_atomically(lease_folder / GIVEN_NAME, json.dumps(given).encode())


def collect_beside(work: Path, lease_folder: Path, into: Path, *, patterns: Sequence[str] | None) -> list[str]:
    """Link what was made or changed beside output/ into `into`; lines for the log. Without a record, nothing.

    `patterns`: only what matches one of them; None: everything but hidden names and caches, up to
    COLLECTED_BYTES_MAX bytes, the smallest files first.
    """
    try:
        given = {path: tuple(mark) for path, mark in json.loads((lease_folder / GIVEN_NAME).read_text()).items()}
    except (OSError, ValueError):
        return []
    bad, full = _Left("their names cannot be kept"), _Left(_why_full(patterns))
    names, bytes_left = _Names(into), COLLECTED_BYTES_MAX if patterns is None else None
    taken: list[str] = []
    for size, path in sorted(_changed(work, given, patterns)):
        target = names.free_name(path)
        if target is None:
            bad.paths.append(path)
        elif names.count >= FILES_PER_ARTIFACT_MAX or (bytes_left is not None and size > bytes_left):
            full.paths.append(path)
        elif _link(work, path, into / target):
            names.add(target)
            taken.append(path)
            bytes_left = None if bytes_left is None else bytes_left - size
    lines = [f"collected {_named(taken)} beside {OUTPUT_NAME}/"] if taken else []
    lines += [left.line() for left in (bad, full) if left.paths]
    return lines


def _why_full(patterns: Sequence[str] | None) -> str:
    files = f"{FILES_PER_ARTIFACT_MAX} files are the most"
    if patterns is not None:
        return files
    return f"{COLLECTED_BYTES_MAX // GIB} GiB beside {OUTPUT_NAME}/ are the most without `outputs:`, and {files}"


def _changed(
    work: Path, given: dict[str, tuple[int, ...]], patterns: Sequence[str] | None
) -> Iterator[tuple[int, str]]:
    """(size, path) of every regular file that is not as it was given and is wanted."""
    skipped = OWN_FOLDERS if patterns is not None else OWN_FOLDERS | CACHES
    for path, found, is_hidden in _files(work, skipped=skipped):
        is_wanted = not is_hidden if patterns is None else any(_matches(path, pattern) for pattern in patterns)
        if is_wanted and path not in OWN_FILES and given.get(path) != _mark(found):
            yield found.st_size, path


def _files(work: Path, *, skipped: frozenset[str]) -> Iterator[tuple[str, os.stat_result, bool]]:
    """(path, status, whether a hidden name of the work folder's own leads to it) of up to ENTRIES_MAX regular files.

    Of `skipped` the contract's folders are skipped in the work folder alone, caches everywhere.
    """
    count = 0
    for folder, folders, files, folder_fd in os.fwalk(work, follow_symlinks=False):
        relative = PurePosixPath(folder).relative_to(work)
        at_top = not relative.parts
        folders[:] = sorted(name for name in folders if name not in (skipped if at_top else skipped & CACHES))
        for name in sorted(files):
            count += 1
            if count > ENTRIES_MAX:
                return
            try:
                found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            except OSError:
                continue
            path = relative / name
            if stat.S_ISREG(found.st_mode):
                yield path.as_posix(), found, path.parts[0].startswith(".")


def _matches(path: str, pattern: str) -> bool:
    """A path, a folder with all below it, or with `*` (any characters, also /), `?` and `[...]`."""
    pattern = pattern.rstrip("/")
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"{pattern}/*")


def _mark(found: os.stat_result) -> Mark:
    return found.st_size, found.st_mtime_ns


def _link(work: Path, path: str, target: Path) -> bool:
    """Link one file, opening no folder through a link; whether it is there now."""
    try:
        descriptor = open_below(work, PurePosixPath(path).parent)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return keep_file(PurePosixPath(path).name, descriptor, target) == 1
        finally:
            os.close(descriptor)
    except OSError:
        return False


class _Names:
    """The names that an output has, so that a new one neither hides nor contradicts another."""

    def __init__(self, into: Path) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self.count = 0
        for path in into.rglob("*"):
            if path.is_file():
                self.add(path.relative_to(into).as_posix())

    def add(self, path: str) -> None:
        self.count += 1
        self._files.add(path.casefold())
        self._folders.update(parent.as_posix() for parent in PurePosixPath(path.casefold()).parents)

    def free_name(self, path: str) -> str | None:
        """`path`, or below `work/` where that is taken; None where neither can be kept."""
        return next((name for name in (path, f"{MOVED_TO}/{path}") if self._is_free(name)), None)

    def _is_free(self, path: str) -> bool:
        folded = path.casefold()
        parents = {parent.as_posix() for parent in PurePosixPath(folded).parents}
        is_taken = folded in self._files or folded in self._folders or bool(parents & self._files)
        return not is_taken and file_name_mistake(path) is None


def _named(paths: Sequence[str]) -> str:
    """`3 files (a, b, c)`, as a log can show them."""
    shown = ", ".join(path.encode("utf-8", "replace").decode() for path in paths[:NAMES_SHOWN_MAX])
    more = ", ..." if len(paths) > NAMES_SHOWN_MAX else ""
    printable = "".join(one if one.isprintable() else "?" for one in shown)
    return f"{len(paths)} file{'s' if len(paths) != 1 else ''} ({printable}{more})"
