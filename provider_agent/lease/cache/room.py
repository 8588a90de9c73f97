"""Keeps the cache within its bounds: what was not used for the longest time goes, but nothing that a program may read.

The bounds are of the node together, and of one customer half of that: one that fills its part takes no other's. Nothing
is kept that would leave less of the disk than every agent keeps free.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from provider_agent.config import DataFolder
from provider_agent.protocol import DISK_RESERVE_MIB
from provider_agent.system.removal import remove_tree

GIB = 1024**3
MIB = 1024**2
OWNER_SHARE = 2  # a customer has so many times less than the node
LEAVING_PREFIX = "."  # of an entry that goes: it does not count, and what is left of it is removed
ARRIVING_NAME = ".arriving"  # in it a folder a lease, named by its id, for what is being copied
ENVIRONMENT_KIND = "environment"  # of own commands: no training reads or leaves an entry of this kind
ENTRIES_MAX = 10_000  # of one node; small ones are no reason to look through a million
# Held by whoever removes or places entries, from before it reads which owners are in use. A lease opens its cache under
# it too, after its owner was noted: so what a program may read is in use, or was replaced before the program began.
CHANGING = threading.Lock()


@dataclass(frozen=True)
class Kept:
    """One entry of the cache. `used_at`: seconds since 1970."""

    folder: Path
    size: int
    used_at: float

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.folder.parents[1].name


class NoRoomError(Exception):
    """The bounds leave no place for an entry; the message says why."""


def list_entries(root: Path) -> list[Kept]:
    """Every entry of the node; links and other things that the agent did not make are none, nor what just goes."""
    found = []
    for folder in root.glob("[!.]*/*/*"):
        if folder.name.startswith(LEAVING_PREFIX) or folder.is_symlink() or not folder.is_dir():
            continue
        with suppress(FileNotFoundError):  # removed meanwhile
            found.append(Kept(folder, _size(folder), folder.stat(follow_symlinks=False).st_mtime))
    return found


def make_room(root: Path, owner: str, size: int, *, bytes_max: int, in_use: Collection[str]) -> None:
    """Remove old entries until `size` bytes more of `owner` fit; raises NoRoomError, and then nothing was removed.

    The caller holds CHANGING.
    """
    found = sorted(list_entries(root), key=lambda each: each.used_at)
    own_max = bytes_max // OWNER_SHARE
    if size > own_max:
        raise NoRoomError(
            f"it has {size // MIB} MiB, and a customer's part of this node's cache is {own_max // MIB} MiB"
        )
    total, own = sum(each.size for each in found), sum(each.size for each in found if each.owner == owner)
    free = shutil.disk_usage(root).free - DISK_RESERVE_MIB * MIB
    count, leaving = len(found), []
    for each in found:
        is_own_full, is_full = own + size > own_max, total + size > bytes_max or size > free or count >= ENTRIES_MAX
        if not (is_own_full or is_full):
            break
        if each.owner in in_use or (is_own_full and not is_full and each.owner != owner):
            continue
        leaving.append(each)
        total, free, count = total - each.size, free + each.size, count - 1
        own -= each.size if each.owner == owner else 0
    if own + size > own_max or total + size > bytes_max or size > free or count >= ENTRIES_MAX:
        raise NoRoomError("what is kept on this node is in use, or its disk is full")
    for each in leaving:
        remove_entry(each.folder)


def remove_entry(folder: Path) -> None:
    """First its name, so that nobody finds half of it."""
    leaving = folder.with_name(f"{LEAVING_PREFIX}{folder.name}.leaving")
    remove_tree(leaving)
    try:
        folder.rename(leaving)
    except FileNotFoundError:
        return
    remove_tree(leaving)


def keep_within(folder: DataFolder, *, bytes_max: int, in_use: Collection[str]) -> None:
    """Remove what the bounds do not allow any more, and what an agent that was killed left half-made.

    The caller holds CHANGING.
    """
    root = folder.cache
    if bytes_max == 0 and not in_use:
        remove_tree(root)
        return
    for left in root.glob(f"[!.]*/*/{LEAVING_PREFIX}*"):
        remove_tree(left)
    for left in root.glob(f"{ARRIVING_NAME}/*"):
        if not (folder.leases / left.name).exists():  # else it is being copied, or its lease does so again
            remove_tree(left)
    found = sorted(list_entries(root), key=lambda each: each.used_at)
    total = sum(each.size for each in found)
    for each in found:
        if total <= bytes_max:
            return
        if each.owner not in in_use:
            remove_entry(each.folder)
            total -= each.size


def _size(folder: Path) -> int:
    """Bytes of its files; none of them is a folder."""
    return sum(path.stat(follow_symlinks=False).st_size for path in folder.iterdir())
