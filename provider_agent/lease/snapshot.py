"""Takes a checkpoint out of a program's reach before the agent reads it.

The program may swap any name in its work folder for a link at any moment, and the agent may be root. So every folder
is opened without following links, files are hard-linked (no bytes move) into a folder that the program cannot see,
and only regular files are kept.
"""

from __future__ import annotations

import heapq
import os
import stat
import time
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath

from provider_agent.lease.walking import ENTRIES_MAX, Walk, open_below
from provider_agent.lease.workfolder import CHECKPOINT_NAME
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX
from provider_agent.system.removal import remove_tree
from runtimes import contract

SECONDS_MAX = 60.0  # for finding the files of one checkpoint: while it is taken, the program is not watched
COPY_SECONDS_MAX = 600.0  # for copying them, where they cannot be linked: as long as an honest one of 100 GB takes
CHECKPOINTS_SEEN_MAX = 100  # the newest ones
COPY_BYTES = 1 << 20
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class FileLeftOut(Exception):
    """This file cannot be kept; the message says why."""


def take_snapshot(work: Path, relative: str, into: Path, *, may_copy: bool = True) -> int:
    """Link every regular file below `work`/`relative` into `into` (made anew); returns how many.

    `may_copy`: a file that cannot be linked is copied; else it is left out. Raises OSError when a part of the path is a
    link or is gone, ValueError for more than a checkpoint may have.
    """
    remove_tree(into)
    into.mkdir(parents=True)
    until = time.monotonic() + SECONDS_MAX
    walk = Walk(work, relative, until=until)
    paths = [path for path, _ in islice(walk.files(), FILES_PER_ARTIFACT_MAX + 1)]
    if len(paths) > FILES_PER_ARTIFACT_MAX:
        raise ValueError(f"{relative} has more than {FILES_PER_ARTIFACT_MAX} files")
    if walk.ended or walk.too_deep.count:
        raise ValueError(f"{relative} cannot be taken: {walk.ended or walk.too_deep.why}")
    count, until = 0, time.monotonic() + COPY_SECONDS_MAX
    for path in paths:
        try:
            keep_file(work, f"{relative}/{path}", into / path, until=until, may_copy=may_copy)
            count += 1
        except FileLeftOut as error:
            if time.monotonic() > until:  # a part of a checkpoint must not count as one
                raise ValueError(f"{relative} could not be copied within {COPY_SECONDS_MAX:.0f} s") from error
            continue  # pruned meanwhile, or no regular file
    return count


def complete_checkpoints(work: Path) -> list[tuple[int, str]]:
    """(step, folder below the work folder) of the newest checkpoints whose manifest was written, oldest first."""
    try:
        descriptor = open_below(work, PurePath(CHECKPOINT_NAME))
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            steps = ((contract.checkpoint_step(Path(entry.name)), entry.name) for entry in islice(entries, ENTRIES_MAX))
            newest = heapq.nlargest(CHECKPOINTS_SEEN_MAX, ((step, name) for step, name in steps if step is not None))
        return [
            (step, f"{CHECKPOINT_NAME}/{name}") for step, name in reversed(newest) if _is_complete(descriptor, name)
        ]
    except OSError:
        return []
    finally:
        os.close(descriptor)


def read_bytes(path: Path, offset: int, size: int) -> bytes:
    """Up to `size` bytes of a regular file from `offset`; empty when there is none, or it is a link or a pipe."""
    try:
        descriptor = os.open(path, OPEN_FILE)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def file_size(path: Path) -> int:
    """The size of a regular file; 0 for everything else."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def keep_file(work: Path, path: str, target: Path, *, until: float, may_copy: bool = True) -> None:
    """Link one file below `work`, or copy it where it cannot be linked; raises FileLeftOut, and then nothing is kept.

    It opens no folder through a link, and keeps only a regular file that can be read. Raises OSError where the disk
    takes no more.
    """
    relative = PurePosixPath(path)
    try:
        folder = open_below(work, relative.parent)
    except OSError as error:
        raise FileLeftOut("gone") from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(relative.name, target, src_dir_fd=folder, follow_symlinks=False)
        except OSError as error:  # another file system, or links are forbidden
            if not may_copy:
                raise FileLeftOut("cannot be linked") from error
            _copy_file(relative.name, folder, target, until=until)
        _require_readable(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    finally:
        os.close(folder)


def _is_complete(descriptor: int, name: str) -> bool:
    try:
        found = os.stat(f"{name}/{contract.MANIFEST_NAME}", dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode)


def _require_readable(target: Path) -> None:
    """The program can make a file that the agent, where it is not root, cannot open."""
    try:
        descriptor = os.open(target, OPEN_FILE)
    except OSError as error:
        raise FileLeftOut("cannot be read") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileLeftOut("no regular file")
    finally:
        os.close(descriptor)


def _copy_file(name: str, folder: int, target: Path, *, until: float) -> None:
    try:
        descriptor = os.open(name, OPEN_FILE, dir_fd=folder)
    except OSError as error:
        raise FileLeftOut("cannot be read") from error
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileLeftOut("no regular file")
        with target.open("wb") as out:
            while chunk := source.read(COPY_BYTES):
                if time.monotonic() > until:
                    raise FileLeftOut("it took too long")
                out.write(chunk)
