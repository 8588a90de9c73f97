"""Copies the Python environment that a command's requirements made into the cache: as it was before the command began.

    1. the lease's folder has the key, which the agent reckoned before the program started
    2. the log has the first line of the launcher about it: found on this node, or packed with this SHA-256, or neither
    3. only bytes with that SHA-256 are taken, and only as the entry of that key

The program cannot change what its log has already, so what it writes into its environment or into the archive later is
never kept: the SHA-256 is another one then. Of a program that is ended while it installs there is no such line.
These entries have a kind of their own, which no training reads and no training leaves.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from provider_agent.config import DataFolder
from provider_agent.executors.base import log_path
from provider_agent.lease.cache.intake import MIB, Intake, Left, file_sizes
from provider_agent.lease.cache.owners import load_owner, owner_folder
from provider_agent.lease.cache.room import ENVIRONMENT_KIND
from provider_agent.system.atomic import write_atomically
from runtimes.contract import CACHE_KEY, MANIFEST_NAME, NEW_CACHE_NAME, sha256_file, write_manifest

KEY_NAME = "environment-key"  # in the lease's folder, where the program does not reach
ARCHIVE_NAME = "environment.tar"
LOG_READ_BYTES_MAX = 64 * 1024**2
LINE_BYTES_MAX = 4096
FOUND = re.compile(rb"\[souk\] environment of (\d{1,6}) packages? found on this node \(\d+\.\d s\)\n")
PACKED = re.compile(rb"\[souk\] environment of (\d{1,6}) packages? packed: sha256 ([0-9a-f]{64})\n")
PREFIX = b"[souk] environment "


@dataclass(frozen=True)
class Outcome:
    """What became of a program's environment before its command began."""

    packages: int
    sha256: str = ""  # of the archive; empty: it was found on this node


def keep_key(lease_folder: Path, key: str) -> None:
    """Note under what key this lease's environment may be kept."""
    write_atomically(lease_folder / KEY_NAME, key.encode())


def load_key(lease_folder: Path) -> str:
    """The key; empty where nothing is to be kept."""
    try:
        key = (lease_folder / KEY_NAME).read_text("utf-8")
    except (OSError, ValueError):
        return ""
    return key if CACHE_KEY.fullmatch(key) else ""


def archive_path(key: str) -> PurePath:
    """Where the launcher packs it, below the work folder."""
    return PurePath(NEW_CACHE_NAME, ENVIRONMENT_KIND, key, ARCHIVE_NAME)


def read_outcome(lease_folder: Path) -> Outcome | None:
    """By the first line of the log about it; None where there is none, or nothing was packed."""
    read = 0
    with suppress(FileNotFoundError), log_path(lease_folder).open("rb") as log:
        while read < LOG_READ_BYTES_MAX and (line := log.readline(LINE_BYTES_MAX)):
            read += len(line)
            if not line.startswith(PREFIX):
                continue
            if found := FOUND.fullmatch(line):
                return Outcome(int(found[1]))
            packed = PACKED.fullmatch(line)
            return Outcome(int(packed[1]), packed[2].decode()) if packed else None
    return None


def take_environment(folder: DataFolder, lease_folder: Path, work: Path, *, bytes_max: int) -> list[str]:
    """Take what was packed, or note that what is here was used; lines for the log. Blocks.

    Raises OSError where the disk takes no more.
    """
    owner, key = load_owner(lease_folder), load_key(lease_folder)
    outcome = read_outcome(lease_folder) if owner and key and bytes_max else None
    if outcome is None:
        return []
    if not outcome.sha256:
        with suppress(FileNotFoundError):
            os.utime(owner_folder(folder, owner) / ENVIRONMENT_KIND / key, follow_symlinks=False)
        return []
    sizes = file_sizes(work, archive_path(key).parent)
    if ARCHIVE_NAME not in sizes:
        return []
    left = Left(ENVIRONMENT_KIND, key, {ARCHIVE_NAME: sizes[ARCHIVE_NAME]})

    def complete(arriving: Path) -> str:
        """Why these bytes are not kept; empty where they are, with a manifest of the agent's own."""
        if sha256_file(arriving / ARCHIVE_NAME) != outcome.sha256:
            return "the program changed it"
        write_manifest(arriving, packages=outcome.packages, made_at=round(time.time()))
        (arriving / MANIFEST_NAME).chmod(0o444)  # a container's user reads it, whatever the agent's own mask
        return ""

    taken = Intake(folder, lease_folder, owner, bytes_max=bytes_max).take(work, left, complete=complete)
    if taken.why_not:
        return [f"environment not kept in this node's cache: {taken.why_not}"]
    number = f"{outcome.packages} package{'' if outcome.packages == 1 else 's'}"
    what = f"environment of {number}, {left.size // MIB} MiB"
    return [f"kept in this node's cache for later jobs of yours: {what}"] if taken.is_kept else []
