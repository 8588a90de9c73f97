"""Walks a folder that a stranger's program wrote: without following links, and never beyond its limits.

The program chose every name, how many there are and how deep they lie. So the walk keeps one open folder a level,
reads names one by one, and stops at DEPTH_MAX, ENTRIES_MAX, FOLDERS_MAX and its deadline. What it passed over it can
say: nothing of it is an error of the node.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from provider_agent.protocol import PATH_CHARACTERS_MAX, PATH_DEPTH_MAX

DEPTH_MAX = PATH_DEPTH_MAX  # no artifact takes a file that lies deeper
ENTRIES_MAX = 200_000  # names of any kind
FOLDERS_MAX = 20_000
NAMES_KEPT_MAX = 10  # of what is left out, for the log

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass
class LeftOut:
    """How many files or folders are left out for one reason, and the names of the first ones."""

    why: str
    what: str = "file"
    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """One more."""
        self.count += 1
        if len(self.names) < NAMES_KEPT_MAX:
            self.names.append(name)


class Walk:
    """One walk through `relative` below `work`; `files` may be called once.

    `skips(path)` says which folders are not entered, by their path below `relative`.
    """

    def __init__(
        self, work: Path, relative: str = "", *, until: float, skips: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._work, self._relative, self._until, self._skips = work, PurePath(relative), until, skips
        self._entries = self._folders = 0
        self.too_deep = LeftOut(f"more than {DEPTH_MAX} folders or {PATH_CHARACTERS_MAX} characters deep", "folder")
        self.unreadable = LeftOut("cannot be opened", "folder")
        self.ended = ""  # why it did not come to its end

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """(path, status) of every regular file, the files of a folder before its folders.

        Raises OSError when a part of the way to the folder itself is a link, no folder, or gone.
        """
        levels: list[tuple[int, str, Iterator[str]]] = []
        try:
            top = open_below(self._work, self._relative)
            levels.append((top, "", iter(())))
            yield from self._enter(levels)
            while levels and not self.ended:
                descriptor, prefix, folders = levels[-1]
                name = next(folders, None)
                if name is None:
                    os.close(levels.pop()[0])
                elif (deeper := self._open(name, descriptor, prefix)) is not None:
                    levels.append((deeper, f"{prefix}{name}/", iter(())))
                    yield from self._enter(levels)
        finally:
            for descriptor, _, _ in levels:
                os.close(descriptor)

    def _open(self, name: str, descriptor: int, prefix: str) -> int | None:
        """The folder, opened; None where it may not be entered or cannot be."""
        path = f"{prefix}{name}"
        if path.count("/") + 1 >= DEPTH_MAX or len(path) > PATH_CHARACTERS_MAX:
            self.too_deep.add(path)
            return None
        try:
            return os.open(name, OPEN_FOLDER, dir_fd=descriptor)
        except OSError:
            self.unreadable.add(path)
            return None

    def _enter(self, levels: list[tuple[int, str, Iterator[str]]]) -> Iterator[tuple[str, os.stat_result]]:
        """The files of the deepest level; its folders are noted there, to be entered next."""
        descriptor, prefix, _ = levels[-1]
        folders: list[str] = []
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if self._is_at_limit():
                        break
                    found = _status(entry)
                    if found is None:
                        continue
                    if stat.S_ISREG(found.st_mode):
                        yield f"{prefix}{entry.name}", found
                    elif stat.S_ISDIR(found.st_mode) and not self._skips(f"{prefix}{entry.name}"):
                        self._folders += 1
                        folders.append(entry.name)
        except OSError:
            self.unreadable.add(prefix.rstrip("/") or ".")
        levels[-1] = descriptor, prefix, iter(sorted(folders))

    def _is_at_limit(self) -> bool:
        self._entries += 1
        if self._entries > ENTRIES_MAX:
            self.ended = f"{ENTRIES_MAX} names are the most that are looked at"
        elif self._folders > FOLDERS_MAX:
            self.ended = f"{FOLDERS_MAX} folders are the most that are looked at"
        elif time.monotonic() > self._until:
            self.ended = "it took too long"
        return bool(self.ended)


def open_below(work: Path, relative: PurePath) -> int:
    """Open a folder below `work`, one part at a time, so that no part may be a link."""
    descriptor = os.open(work, OPEN_FOLDER)
    for part in relative.parts:
        try:
            deeper = os.open(part, OPEN_FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of the name itself, never of what it links to; None where it is gone."""
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
