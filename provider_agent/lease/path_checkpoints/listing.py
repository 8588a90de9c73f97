"""What lies at a `checkpoint.path`: the name, size and time of each file, found without following a link.

Only regular files are kept, as of every artifact: links, pipes and names that no artifact may have are left out. What
would not be whole (more files than a checkpoint may have, folders that are too deep or cannot be opened) is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from provider_agent.lease.collecting import ArtifactNames
from provider_agent.lease.walking import Walk, open_below
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX
from runtimes.contract import PARTIAL_SUFFIX

CONTENT_NAME: Final = "content"
FILES_MAX: Final = FILES_PER_ARTIFACT_MAX - 1  # and the manifest
SECONDS_MAX: Final = 60.0  # for finding them
NAME_BYTES_MAX: Final = 255 - len(PARTIAL_SUFFIX)  # whoever fetches a file writes it under a longer name first
NAMES_SHOWN_MAX: Final = 3


class CopyRefused(Exception):
    """The path cannot be copied as it is now; the message says why and what the customer can do."""


@dataclass(frozen=True)
class Mark:
    """By what a file that was written meanwhile is known: its inode, size in bytes, last change in nanoseconds."""

    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Mark:
        """From a file's status."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass
class Listing:
    """The files that are kept, by their path relative to the path's parent, and how many others there are."""

    marks: dict[str, Mark] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # the first of them, for the log

    @property
    def size(self) -> int:
        """Bytes in all, holes included: a copy has none."""
        return sum(mark.size for mark in self.marks.values())

    @property
    def changed_ns(self) -> int:
        """When the newest of them was written; 0 without any."""
        return max((mark.changed_ns for mark in self.marks.values()), default=0)

    def digest(self) -> str:
        """Two listings with one digest are of the same files, none of which was written in between."""
        rows = [[path, mark.inode, mark.size, mark.changed_ns] for path, mark in sorted(self.marks.items())]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def list_path(work: Path, path: str) -> Listing:
    """The files at `path` below `work`, a folder or one file; none where it is missing, a link or something else.

    Raises CopyRefused for what cannot be a whole checkpoint.
    """
    walk = Walk(work, path, until=time.monotonic() + SECONDS_MAX)
    try:
        found = list(islice(_files(walk, work, PurePosixPath(path)), FILES_MAX + 1))
    except OSError:
        return Listing()
    if len(found) > FILES_MAX:
        raise CopyRefused(f"{path} has more than {FILES_MAX} files; name a folder with fewer")
    if walk.ended:
        raise CopyRefused(f"{path} is too much to look at ({walk.ended}); name a smaller folder")
    for passed in (walk.too_deep, walk.unreadable):
        if passed.count:
            raise CopyRefused(f"{path} has {passed.count} folders that are left out: {passed.why}")
    listing, names = Listing(), ArtifactNames()
    for name, mark in sorted(found, key=lambda each: each[0].encode("utf-8", "surrogatepass")):
        if _is_kept(name, names):
            names.add(f"{CONTENT_NAME}/{name}")
            listing.marks[name] = mark
        elif len(listing.left_out) < NAMES_SHOWN_MAX:
            listing.left_out.append(f"{name.encode('utf-8', 'replace').decode()!r:.100}")
    return listing


def _files(walk: Walk, work: Path, path: PurePosixPath) -> Iterator[tuple[str, Mark]]:
    try:
        for below, found in walk.files():
            yield f"{path.name}/{below}", Mark.of(found)
    except NotADirectoryError:
        parent = open_below(work, path.parent)
        try:
            found = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)
        if stat.S_ISREG(found.st_mode):
            yield path.name, Mark.of(found)


def _is_kept(name: str, names: ArtifactNames) -> bool:
    """Whether it can be stored and fetched again: not under two names of one file, nor under a name of the fetcher."""
    is_longer = any(len(part.encode("utf-8", "replace")) > NAME_BYTES_MAX for part in name.split("/"))
    return not is_longer and not name.endswith(PARTIAL_SUFFIX) and bool(names.free_name([f"{CONTENT_NAME}/{name}"]))
