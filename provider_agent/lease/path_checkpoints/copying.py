"""Copies a `checkpoint.path` while its program runs, so that the copy is of one moment or does not count.

    1. each file is copied through folders that are opened without links, as many bytes as the listing says, hashed
    2. before and after it, the file has the inode, size and time of the listing; else something wrote to it
    3. after the last file the whole path is listed again: the same files with the same marks
    4. the manifest is written last

A hard link would not do: what a program rewrites in place changes under every name that it has.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from provider_agent.executors.base import FILE_BYTES_MAX
from provider_agent.lease.path_checkpoints.listing import CONTENT_NAME, CopyRefused, Listing, Mark, list_path
from provider_agent.lease.snapshot import COPY_BYTES, OPEN_FILE
from provider_agent.lease.walking import open_below
from provider_agent.system.removal import remove_tree
from runtimes import contract
from runtimes.contract import FileEntry

COPY_SECONDS_MAX: Final = 1800.0  # a terabyte at 600 MB/s
ROOM_SHARE: Final = 2  # a copy takes no more than the half of what is free: the other half is the program's
BYTES_MAX: Final = 2 * 1024**4  # what the server takes of one artifact
MIB: Final = 1024**2


class CopyTorn(Exception):
    """Something was written during the copy; a later one may succeed. The message names it."""


def copy_path(
    work: Path,
    path: str,
    listing: Listing,
    into: Path,
    *,
    step: int,
    is_stopped: Callable[[], bool],
    seconds_max: float,
) -> None:
    """Make `into` a complete checkpoint of what `listing` lists; what there was is removed, and so is a torn copy.

    Raises CopyTorn, CopyRefused (too large, unreadable, too slow), and OSError where the disk takes no more.
    """
    remove_tree(into)
    _require_room(path, listing, into.parent)
    until = time.monotonic() + min(seconds_max, COPY_SECONDS_MAX)

    def require_time() -> None:
        if is_stopped():
            raise CopyTorn("the program was ended meanwhile")
        if time.monotonic() > until:
            raise CopyRefused(f"{path} could not be copied in time; name a smaller folder")

    try:
        below = PurePosixPath(path).parent
        entries = [
            _copy_file(work, below / name, mark, into / CONTENT_NAME / name, require_time)
            for name, mark in listing.marks.items()
        ]
        if list_path(work, path).digest() != listing.digest():
            raise CopyTorn(f"files of {path} came, went or were written")
        known = [
            FileEntry(f"{CONTENT_NAME}/{name}", *found) for name, found in zip(listing.marks, entries, strict=True)
        ]
        times = {name: mark.changed_ns for name, mark in listing.marks.items()}
        contract.write_manifest(into, known=known, step=step, path=path, changed_ns=times)
    except BaseException:
        remove_tree(into)
        raise


def _require_room(path: str, listing: Listing, disk: Path) -> None:
    disk.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(disk).free // ROOM_SHARE
    if listing.size > min(room, BYTES_MAX):
        sizes = f"{listing.size // MIB} MiB, and a copy may take {min(room, BYTES_MAX) // MIB} MiB on this node"
        raise CopyRefused(f"{path} has {sizes}; keep fewer checkpoints in it, or ask for a larger disk")
    for name, mark in listing.marks.items():
        if mark.size > FILE_BYTES_MAX:
            raise CopyRefused(
                f"{name} has more than the {FILE_BYTES_MAX} bytes that one file may have; save it in parts"
            )


def _copy_file(
    work: Path, name: PurePosixPath, mark: Mark, target: Path, require_time: Callable[[], None]
) -> tuple[int, str]:
    """Its size and SHA-256, once it is at `target`; never more bytes than the mark has, however it grows."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), mark.size
    with os.fdopen(_open(work, name, mark), "rb", buffering=0) as source, target.open("xb") as out:
        while left > 0:
            require_time()
            chunk = source.read(min(COPY_BYTES, left))
            if not chunk:
                break
            digest.update(chunk)
            out.write(chunk)
            left -= len(chunk)
        if left or Mark.of(os.fstat(source.fileno())) != mark:
            raise CopyTorn(f"{name} was being written")
    require_time()
    return mark.size, digest.hexdigest()


def _open(work: Path, name: PurePosixPath, mark: Mark) -> int:
    """The very file of the listing, opened."""
    try:
        folder = open_below(work, name.parent)
        try:
            descriptor = os.open(name.name, OPEN_FILE, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM}:
            raise CopyRefused(f"{name} cannot be read by the agent; let the program make it readable") from error
        raise CopyTorn(f"{name} is gone or became a link") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or Mark.of(found) != mark:
        os.close(descriptor)
        raise CopyTorn(f"{name} was being written")
    return descriptor
