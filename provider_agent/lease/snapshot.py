"""Takes a folder out of a program's reach before the agent reads it.

The program may swap any name in its work folder for a link at any moment, and the agent may be root. So every folder
is opened without following links, files are hard-linked (no bytes move) into a folder that the program cannot see,
and only regular files are kept.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path, PurePath

from provider_agent.protocol import FILES_PER_ARTIFACT_MAX

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def take_snapshot(work: Path, relative: str, into: Path) -> int:
    """Link every regular file below `work`/`relative` into `into` (made anew); returns how many.

    Raises OSError when a part of the path is a link or is gone, ValueError for more files than an artifact may have.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    descriptor = open_below(work, PurePath(relative))
    try:
        count = 0
        for folder, _folders, files, folder_fd in os.fwalk(".", dir_fd=descriptor, follow_symlinks=False):
            target = into / folder
            target.mkdir(parents=True, exist_ok=True)
            for name in files:
                count += keep_file(name, folder_fd, target / name)
                if count > FILES_PER_ARTIFACT_MAX:
                    raise ValueError(f"{relative} has more than {FILES_PER_ARTIFACT_MAX} files")
        return count
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


def keep_file(name: str, folder_fd: int, target: Path) -> int:
    """Link one file; what turns out not to be a regular file is dropped again."""
    try:
        os.link(name, target, src_dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        _copy_file(name, folder_fd, target)  # another file system, or links to others' files are forbidden
    if target.is_symlink() or not target.is_file():
        target.unlink(missing_ok=True)
        return 0
    return 1


def _copy_file(name: str, folder_fd: int, target: Path) -> None:
    try:
        descriptor = os.open(name, OPEN_FILE, dir_fd=folder_fd)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as source:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with target.open("wb") as out:
                shutil.copyfileobj(source, out)
