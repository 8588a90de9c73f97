"""Installed requirements that a node keeps for an organisation's next attempt: sealed, bounded, and whole or absent.

    <data folder>/environments/<key>-<build>/   one environment, at the path that its scripts carry
    <data folder>/environments/<key>.json       names the build that is complete: written last, by a rename
    <lease folder>/environment.json             what a lease uses: as long as it lies there, it is not evicted

A program that installs writes to a folder of its own build. When no process of it is left, everything is copied to new
files, so that nothing outside (a hard link, an open file) leads to what later programs read. Those see it by Landlock's
rules: to read only, and only if their lease uses it. The key holds the organisation, so no other ever sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from provider_agent.errors import EnvironmentRefused
from provider_agent.system.atomic import write_atomically
from provider_agent.system.removal import remove_tree

BYTES_MAX = 64 * 1024**3  # of all environments of a node
DISK_SHARE_MAX = 0.2  # of the file system, where that is less
ENVIRONMENT_BYTES_MAX = 32 * 1024**3
FILES_MAX = 500_000
WAIT_SECONDS_MAX = 600.0  # for another lease that installs the same; then it is installed for this one alone
USES_NAME = "environment.json"
BUILT_SUFFIX = ".built"

UnlessStopped = Callable[[Coroutine[Any, Any, bool]], Awaitable[bool]]


class Environments:
    """The environments of one data folder."""

    def __init__(self, root: Path, leases: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._root, self._leases, self._bytes_max = root, leases, bytes_max
        self._turns: dict[str, asyncio.Lock] = {}
        self._building: set[str] = set()

    @asynccontextmanager
    async def turn(self, key: str, unless_stopped: UnlessStopped) -> AsyncIterator[None]:
        """One lease at a time installs what has this key; whoever has waited too long goes on beside it."""
        lock = self._turns.setdefault(key, asyncio.Lock())
        has_turn = False
        with contextlib.suppress(TimeoutError):
            await unless_stopped(asyncio.wait_for(lock.acquire(), WAIT_SECONDS_MAX))
            has_turn = True
        try:
            yield
        finally:
            if has_turn:
                lock.release()

    def find(self, key: str, lease_folder: Path) -> Path | None:
        """The complete environment of this key, kept from eviction by this lease from now on; None: there is none."""
        marker = self._marker(key)
        try:
            name = str(json.loads(marker.read_text())["folder"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        write_atomically(lease_folder / USES_NAME, json.dumps(name).encode())
        if not (self._root / name / "bin" / "python").exists():
            return None
        os.utime(marker)
        return self._root / name

    def begin(self, key: str, lease_folder: Path) -> Path:
        """An empty folder for one build; what earlier builds left half is removed."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = self._root / f"{key}-{uuid4().hex[:12]}"
        self._building.add(folder.name)
        write_atomically(lease_folder / USES_NAME, json.dumps(folder.name).encode())
        self._sweep()  # also what this lease began before its agent was killed
        folder.mkdir(mode=0o755)
        return folder

    def complete(self, key: str, folder: Path) -> None:
        """Seal and keep what was built; called once no process of the build is left.

        Raises EnvironmentRefused for one that is too large, or has a link that leads out of it.
        """
        built = folder.with_name(folder.name + BUILT_SUFFIX)
        folder.rename(built)
        size = _copy_sealed(built, folder)
        remove_tree(built)
        self._evict(room_bytes=size)
        os.sync()  # the bytes before the name
        write_atomically(self._marker(key), json.dumps({"folder": folder.name, "bytes": size}).encode())
        self._building.discard(folder.name)

    def abandon(self, folder: Path) -> None:
        """Remove a build that failed; nothing where it was completed."""
        if folder.name in self._building:
            remove_tree(folder.with_name(folder.name + BUILT_SUFFIX))
            remove_tree(folder)
            self._building.discard(folder.name)

    def _marker(self, key: str) -> Path:
        return self._root / f"{key}.json"

    def _sizes(self) -> dict[Path, tuple[str, int]]:
        """Of each marker, the one used longest ago first: its folder's name and its bytes."""
        found: dict[Path, tuple[str, int]] = {}
        for marker in sorted(self._root.glob("*.json"), key=lambda path: path.stat().st_mtime):
            try:
                data = json.loads(marker.read_text())
                found[marker] = (str(data["folder"]), int(data["bytes"]))
            except (OSError, ValueError, KeyError, TypeError):
                marker.unlink(missing_ok=True)
        return found

    def _sweep(self) -> None:
        """Remove folders that no marker, no build and no lease names."""
        kept = {name for name, _ in self._sizes().values()} | self._building | self._in_use()
        for folder in self._root.iterdir():
            if folder.is_dir() and folder.name.removesuffix(BUILT_SUFFIX) not in kept:
                remove_tree(folder)

    def _evict(self, *, room_bytes: int) -> None:
        """Remove what was used longest ago and no lease uses, until so much more is within the bound."""
        most = min(self._bytes_max, int(shutil.disk_usage(self._root).total * DISK_SHARE_MAX))
        sizes, used = self._sizes(), self._in_use()
        total = sum(size for _, size in sizes.values())
        for marker, (name, size) in sizes.items():
            if total + room_bytes <= most:
                return
            if name not in used:
                marker.unlink(missing_ok=True)
                remove_tree(self._root / name)
                total -= size
        if total + room_bytes > most:
            raise EnvironmentRefused(
                f"the installed packages have {room_bytes >> 20} MiB, and this node has no room for them: it keeps at"
                f" most {most >> 20} MiB"
            )

    def _in_use(self) -> set[str]:
        found: set[str] = set()
        for path in self._leases.glob(f"*/{USES_NAME}"):
            with contextlib.suppress(OSError, ValueError):
                found.add(str(json.loads(path.read_text())))
        return found


@lru_cache(maxsize=8)
def environments_of(data_folder: Path, leases: Path) -> Environments:
    """The one cache of a data folder."""
    return Environments(data_folder / "environments", leases)


def _copy_sealed(built: Path, target: Path) -> int:
    """Copy folders, files and links to new ones; returns the bytes of the files.

    Links lead to what lies in the environment; those of `bin/` may lead to an interpreter elsewhere.
    """
    total = count = 0
    target.mkdir(mode=0o755)
    for here, folders, names in os.walk(built):
        place = target / Path(here).relative_to(built)
        for name in [*folders, *names]:
            source, copy = Path(here) / name, place / name
            count += 1
            mode = source.lstat().st_mode
            if stat.S_ISLNK(mode):
                _require_inside(source, built, target)
                copy.symlink_to(source.readlink())
            elif stat.S_ISDIR(mode):
                copy.mkdir(mode=0o755)
            elif stat.S_ISREG(mode):
                total += source.stat().st_size
                if total > ENVIRONMENT_BYTES_MAX or count > FILES_MAX:
                    raise EnvironmentRefused(
                        f"the installed packages have more than {ENVIRONMENT_BYTES_MAX >> 30} GiB or {FILES_MAX} files"
                    )
                shutil.copyfile(source, copy, follow_symlinks=False)
                shutil.copystat(source, copy, follow_symlinks=False)
                copy.chmod(0o555 if mode & stat.S_IXUSR else 0o444)
            # pipes and sockets are nothing that a package needs
    return total


def _require_inside(link: Path, built: Path, target: Path) -> None:
    """Raise EnvironmentRefused for a link out of the environment, but for those of the interpreter itself."""
    leads_to = link.readlink()
    if link.parent == built / "bin" and link.name.startswith("python"):
        return
    place = os.path.normpath(link.parent / leads_to)
    if not leads_to.is_absolute() and Path(place).is_relative_to(built):
        return
    if leads_to.is_absolute() and Path(os.path.normpath(leads_to)).is_relative_to(target):
        return
    raise EnvironmentRefused(f"{link.relative_to(built)} is a link that leads out of the environment")
