"""Puts the content of a checkpoint back to its path in the work folder, before the program starts.

What came from another node is data: names were checked when it was fetched, nothing is unpickled, and of its manifest
only times are read, for files that are there. No folder is entered through a link.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from provider_agent.lease.path_checkpoints.listing import CONTENT_NAME
from provider_agent.lease.walking import OPEN_FOLDER
from provider_agent.system.removal import remove_tree
from runtimes.contract import MANIFEST_NAME

MANIFEST_BYTES_MAX: Final = 32 * 1024**2  # of 20,000 files with 512 characters each, twice, and their hashes
TIME_NS_MAX: Final = 2**62


def restore_path(checkpoint: Path, work: Path, path: str) -> bool:
    """Move `checkpoint`'s content, as it was fetched, to `work`/`path`; what lies there goes. False: there is none.

    Every file and folder has the time of its last change again: there are programs that choose by it. Raises OSError
    where a part of the way is a link or a file.
    """
    name = PurePosixPath(path).name
    source = checkpoint / CONTENT_NAME / name
    if source.is_symlink() or not source.exists():
        return False
    _restore_times(source, _times(checkpoint / MANIFEST_NAME))
    parent = _make_folders(work, PurePosixPath(path).parent.parts)
    try:
        _remove(work / path)
        os.rename(source, name, dst_dir_fd=parent)
    finally:
        os.close(parent)
    return True


def _make_folders(work: Path, parts: tuple[str, ...]) -> int:
    """The folder of these names below the work folder, made where it is missing, and opened."""
    descriptor = os.open(work, OPEN_FOLDER)
    for part in parts:
        try:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=descriptor)
            deeper = os.open(part, OPEN_FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def _remove(there: Path) -> None:
    if there.is_dir() and not there.is_symlink():
        remove_tree(there)
    else:
        there.unlink(missing_ok=True)


def _times(manifest: Path) -> dict[str, int]:
    """When each file was written, in nanoseconds; nothing of what makes no sense."""
    try:
        if manifest.stat().st_size > MANIFEST_BYTES_MAX:
            return {}
        body = json.loads(manifest.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    times = body.get("changed_ns") if isinstance(body, dict) else None
    return {
        name: value
        for name, value in (times.items() if isinstance(times, dict) else ())
        if type(value) is int and 0 <= value <= TIME_NS_MAX
    }


def _restore_times(source: Path, times: dict[str, int]) -> None:
    """Of the files that have one; a folder's is that of the newest file below it."""
    newest: dict[Path, int] = {}
    for file in [source] if source.is_file() else [each for each in source.rglob("*") if each.is_file()]:
        changed_ns = times.get(file.relative_to(source.parent).as_posix())
        if changed_ns is None:
            continue
        os.utime(file, ns=(changed_ns, changed_ns))
        for folder in file.relative_to(source.parent).parents[:-1]:
            newest[folder] = max(newest.get(folder, 0), changed_ns)
    for folder, changed_ns in newest.items():
        os.utime(source.parent / folder, ns=(changed_ns, changed_ns))
