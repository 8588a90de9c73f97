"""Collects the result of a program: all of `output/`, and what it made or changed beside it.

    1. record_given      before the program starts: every file that it is given, by size and time
    2. collect_output    after it completed: regular files below output/, and beside it those that are new or not as
                         they were given, linked into the folder that is sent; returns what the customer's log is to say

Where a program writes does not decide whether its result arrives, and what it wrote decides nothing but that: a folder
that is gone, links, folders without end or files that nobody can read are left out, the log says so, and the attempt
ends as the program did. Files are found and linked without following links.
"""

from __future__ import annotations

import errno
import fnmatch
import heapq
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from provider_agent.executors.base import FILE_BYTES_MAX
from provider_agent.executors.scratch import has_disk
from provider_agent.lease.snapshot import FileLeftOut, keep_file
from provider_agent.lease.walking import LeftOut, Walk
from provider_agent.lease.workfolder import (
    CHECKPOINT_NAME,
    CONFIG_NAME,
    ENVIRONMENT_NAME,
    EVENTS_NAME,
    OUTPUT_NAME,
    RESUME_NAME,
)
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, file_name_mistake
from provider_agent.system.atomic import write_atomically
from provider_agent.system.removal import remove_tree
from runtimes.contract import NEW_CACHE_NAME

OUTPUT_BYTES_MAX = 2 * 1024**4  # what the server takes of one artifact
COLLECTED_BYTES_MAX = 10 * 1024**3  # of what no pattern of the job file names; output/ itself has no such limit
SECONDS_MAX = 120.0  # for finding what is collected: a program decides how much there is to look at
COPY_SECONDS_MAX = 900.0  # for keeping it: most is linked, but where it must be copied, the disk decides
NAME_CHARACTERS_SHOWN_MAX = 120
GIVEN_NAME = "given.json"  # beside the work folder, where the program does not reach
MOVED_TO = "work"  # for a file beside output/ whose name one in output/ has
# Shipped by themselves, given, or installed.
OWN_FOLDERS = frozenset({OUTPUT_NAME, CHECKPOINT_NAME, RESUME_NAME, ENVIRONMENT_NAME, NEW_CACHE_NAME})
OWN_FILES = frozenset({CONFIG_NAME, EVENTS_NAME})
CACHES = frozenset({"__pycache__"})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
GIB = 1024**3

Mark = tuple[int, int]  # size, time of the last change in nanoseconds


def record_given(work: Path, lease_folder: Path) -> None:
    """Remember every file that the program finds in its work folder."""
    walk = Walk(work, until=time.monotonic() + SECONDS_MAX, skips=OWN_FOLDERS.__contains__)
    given = {path: _mark(found) for path, found in walk.files()}
    write_atomically(lease_folder / GIVEN_NAME, json.dumps(given).encode())


def collect_output(
    work: Path, lease_folder: Path, into: Path, *, with_beside: bool, patterns: Sequence[str] | None = None
) -> list[str]:
    """Link a program's result into `into` (made anew); lines for its log.

    `with_beside`: also what it made or changed beside output/, where there is a record of what it was given.
    `patterns`: of that, only what matches one of them; None: everything but hidden names and caches, up to
    COLLECTED_BYTES_MAX bytes, the smallest files first. Raises OSError where the node's disk takes no more.
    """
    remove_tree(into)
    result = _Result(work, into, has_own_disk=has_disk(lease_folder), until=time.monotonic() + SECONDS_MAX)
    result.add_output()
    given = _load_given(lease_folder) if with_beside else None
    if given is not None:
        result.add_beside(given, patterns)
    return result.lines


class _Result:
    """What is sent, as it grows, and what the customer's log is to say of it."""

    def __init__(self, work: Path, into: Path, *, has_own_disk: bool, until: float) -> None:
        self._work, self._into, self._has_own_disk, self._until = work, into, has_own_disk, until
        self._copied_until = time.monotonic() + COPY_SECONDS_MAX
        self._names = ArtifactNames()
        self._bytes_left = OUTPUT_BYTES_MAX
        self.lines: list[str] = []

    def add_output(self) -> None:
        """Everything below output/, each file under its name there."""
        walk = Walk(self._work, OUTPUT_NAME, until=self._until)
        why_full = f"{FILES_PER_ARTIFACT_MAX} files and {OUTPUT_BYTES_MAX // GIB} GiB are the most"
        try:
            chosen, left = _choose(((path, found.st_size) for path, found in walk.files()), why_full)
        except OSError as error:
            self.lines.append(f"nothing below {OUTPUT_NAME}/ could be kept: {error.strerror}")
            return
        self._add_all([(f"{OUTPUT_NAME}/{path}", size, (path,)) for path, size in chosen], self._bytes_left, left)
        self._note_walk(walk, f"{OUTPUT_NAME}/")

    def add_beside(self, given: dict[str, tuple[int, ...]], patterns: Sequence[str] | None) -> None:
        """What is new or changed beside output/; what has the name of a file there comes below work/."""
        walk = Walk(self._work, until=self._until, skips=lambda path: _is_skipped(path, patterns))
        bytes_max = self._bytes_left if patterns is not None else min(COLLECTED_BYTES_MAX, self._bytes_left)
        try:
            chosen, left = _choose(_changed(walk, given, patterns), _why_full(patterns))
        except OSError as error:
            self.lines.append(f"nothing beside {OUTPUT_NAME}/ could be kept: {error.strerror}")
            return
        files = [(path, size, (path, f"{MOVED_TO}/{path}")) for path, size in chosen]
        taken = self._add_all(files, bytes_max, left)
        if taken.count:
            self.lines.append(f"collected {_named(taken)} beside {OUTPUT_NAME}/")
        self._note_walk(walk, "")

    def _add_all(self, files: Sequence[tuple[str, int, tuple[str, ...]]], bytes_max: int, full: LeftOut) -> LeftOut:
        """Link each (path, size, names to choose from) that fits; what was taken. The log says what was not."""
        left: dict[str, LeftOut] = {full.why: full}
        taken = LeftOut("")
        for path, size, names in files:
            target = self._names.free_name(names)
            if target is None:
                why = "their names cannot be kept"
            elif self._names.count >= FILES_PER_ARTIFACT_MAX or size > min(bytes_max, FILE_BYTES_MAX):
                why = full.why
            elif not (why := self._keep(path, target)):
                self._names.add(target)
                self._bytes_left -= size
                bytes_max -= size
                taken.add(path)
                continue
            left.setdefault(why, LeftOut(why)).add(path)
        self.lines += [f"left out {_named(each)}: {each.why}" for each in left.values() if each.count]
        return taken

    def _keep(self, path: str, target: str) -> str:
        """Why the file could not be kept; empty where it is there now."""
        if time.monotonic() > self._copied_until:
            return "it took too long"
        try:
            keep_file(self._work, path, self._into / target, until=self._copied_until)
        except FileLeftOut as error:
            return str(error)
        except OSError as error:
            if self._has_own_disk and error.errno in NO_ROOM:  # the program filled it
                return "the job's disk is full"
            raise
        return ""

    def _note_walk(self, walk: Walk, below: str) -> None:
        """Say what the walk passed over."""
        for left in (walk.too_deep, walk.unreadable):
            if left.count:
                self.lines.append(f"left out {_named(left, below)}: {left.why}")
        if walk.ended:
            self.lines.append(f"left out the rest of {below or 'the work folder'}: {walk.ended}")


def _choose(files: Iterable[tuple[str, int]], why_full: str) -> tuple[list[tuple[str, int]], LeftOut]:
    """The smallest files that an artifact has room for, and how many there are beside them."""
    left = LeftOut(why_full)

    def counted() -> Iterator[tuple[int, str]]:
        for path, size in files:
            left.count += 1
            yield size, path

    chosen = heapq.nsmallest(FILES_PER_ARTIFACT_MAX, counted())
    left.count -= len(chosen)
    return [(path, size) for size, path in chosen], left


def _why_full(patterns: Sequence[str] | None) -> str:
    files = f"{FILES_PER_ARTIFACT_MAX} files are the most"
    if patterns is not None:
        return files
    return f"{COLLECTED_BYTES_MAX // GIB} GiB beside {OUTPUT_NAME}/ are the most without `outputs:`, and {files}"


def _load_given(lease_folder: Path) -> dict[str, tuple[int, ...]] | None:
    """What the program was given; None without a record: the lease is one of an older agent."""
    try:
        return {path: tuple(mark) for path, mark in json.loads((lease_folder / GIVEN_NAME).read_text()).items()}
    except (OSError, ValueError):
        return None


def _changed(
    walk: Walk, given: dict[str, tuple[int, ...]], patterns: Sequence[str] | None
) -> Iterator[tuple[str, int]]:
    """(path, size) of every regular file that is not as it was given and is wanted."""
    for path, found in walk.files():
        is_wanted = not path.startswith(".") if patterns is None else any(_matches(path, each) for each in patterns)
        if is_wanted and path not in OWN_FILES and given.get(path) != _mark(found):
            yield path, found.st_size


def _is_skipped(path: str, patterns: Sequence[str] | None) -> bool:
    """The contract's folders; without patterns also caches anywhere, and hidden folders at the top."""
    if path in OWN_FOLDERS:
        return True
    return patterns is None and (path.startswith(".") or PurePosixPath(path).name in CACHES)


def _matches(path: str, pattern: str) -> bool:
    """A path, a folder with all below it, or with `*` (any characters, also /), `?` and `[...]`."""
    pattern = pattern.rstrip("/")
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"{pattern}/*")


def _mark(found: os.stat_result) -> Mark:
    return found.st_size, found.st_mtime_ns


class ArtifactNames:
    """The names that an artifact has, so that a new one neither hides nor contradicts another."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self.count = 0

    def add(self, path: str) -> None:
        """One more file."""
        self.count += 1
        self._files.add(path.casefold())
        self._folders.update(parent.as_posix() for parent in PurePosixPath(path.casefold()).parents)

    def free_name(self, names: Sequence[str]) -> str | None:
        """The first of `names` that is free and can be kept; None where none is."""
        return next((name for name in names if self._is_free(name)), None)

    def _is_free(self, path: str) -> bool:
        folded = path.casefold()
        parents = {parent.as_posix() for parent in PurePosixPath(folded).parents}
        is_taken = folded in self._files or folded in self._folders or bool(parents & self._files)
        return not is_taken and file_name_mistake(path) is None


def _named(left: LeftOut, below: str = "") -> str:
    """`3 files (a, b, c)`, as a log can show them."""
    names = [below + name for name in left.names]
    shown = ", ".join(
        f"{name[:NAME_CHARACTERS_SHOWN_MAX]}..." if len(name) > NAME_CHARACTERS_SHOWN_MAX else name for name in names
    )
    more = ", ..." if left.count > len(names) else ""
    printable = "".join(one if one.isprintable() else "?" for one in shown.encode("utf-8", "replace").decode())
    listed = f" ({printable}{more})" if names else ""
    return f"{left.count} {left.what}{'s' if left.count != 1 else ''}{listed}"
