"""Copies what a program left for later ones of its customer into the cache, once its manifest is written.

    1. look through .souk-cache/KIND/KEY in the work folder: plain names, regular files, nothing through a link
       in at most FOLDERS_MAX folders and for LOOK_SECONDS_MAX
    2. make room; what does not fit is left out, and the log says so
    3. copy each file, as many bytes as it had, into a folder of the lease's
    4. look anew whose entries are in use, and make room anew: copying took minutes; then rename that folder

The program may have written anything there, and may still run where it detached something. So bytes are copied and
never linked, and what comes of a torn copy is found by its digests when it is to be used.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path, PurePath

from provider_agent.config import DataFolder
from provider_agent.lease.cache.owners import load_owner, owner_folder, owners_in_use
from provider_agent.lease.cache.room import (
    ARRIVING_NAME,
    CHANGING,
    ENVIRONMENT_KIND,
    NoRoomError,
    make_room,
    remove_entry,
)
from provider_agent.lease.snapshot import OPEN_FILE, read_bytes
from provider_agent.lease.walking import open_below
from provider_agent.protocol import PREPARED_MANIFEST_BYTES_MAX, file_name_mistake
from provider_agent.system.atomic import write_atomically
from provider_agent.system.removal import remove_tree
from runtimes.contract import (
    CACHE_KEY,
    CACHE_KIND,
    CACHE_USED_BYTES_MAX,
    CACHE_USED_NAME,
    MANIFEST_NAME,
    NEW_CACHE_NAME,
)

ENTRIES_TAKEN_MAX = 16  # of one program
NAMES_SEEN_MAX = 1000  # in one folder
FOLDERS_MAX = 100  # of kinds and entries together, complete or not
LOOK_SECONDS_MAX = 10.0  # for finding entries
FILES_MAX = 16  # of one entry
COPY_SECONDS_MAX = 120.0  # for everything that one program left: nobody pays for that time
COPY_BYTES = 1 << 20
MIB = 1024**2
# In the lease's folder: a line `KIND/KEY SHA-256` for each entry that came from the store, with its manifest's digest.
FETCHED_NAME = "prepared-fetched"
FETCHED_BYTES_MAX = 64 * 1024


class TornError(Exception):
    """A file became another one while it was copied, or there was no time; the message says which."""


@dataclass(frozen=True)
class Left:
    """A complete entry in a work folder, by the sizes that its files had."""

    kind: str
    key: str
    sizes: dict[str, int]

    @property
    def name(self) -> str:
        """KIND/KEY."""
        return f"{self.kind}/{self.key}"

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())


@dataclass(frozen=True)
class Taken:
    """What became of an entry. Neither kept nor with a reason: another program may be reading the one that is there."""

    is_kept: bool = False
    why_not: str = ""


class Intake:
    """Takes entries of one lease into the cache, each within the bounds of customer, node and time."""

    def __init__(self, folder: DataFolder, lease_folder: Path, owner: str, *, bytes_max: int) -> None:
        self._folder, self._lease_folder, self._owner, self._bytes_max = folder, lease_folder, owner, bytes_max
        self._own = owner_folder(folder, owner)
        self._arriving = folder.cache / ARRIVING_NAME / lease_folder.name
        self._until = time.monotonic() + COPY_SECONDS_MAX

    def take(self, work: Path, left: Left, *, complete: Callable[[Path], str] = lambda _: "") -> Taken:
        """Copy it, have `complete` look at the copy (it says why that is not kept), and place it. Blocks.

        Raises OSError where the disk takes no more.
        """
        target = self._own / left.kind / left.key
        try:
            with CHANGING:
                if not self._make_way(target, left.size):
                    return Taken()
            _copy(work, left, self._arriving, until=self._until)
            if why_not := complete(self._arriving):
                return Taken(why_not=why_not)
            with CHANGING:  # of two that fitted each, one may fit no more; and other leases have come meanwhile
                if not self._make_way(target, left.size):
                    return Taken()
                _place(self._arriving, target)
        except (NoRoomError, TornError) as error:
            return Taken(why_not=str(error))
        finally:
            remove_tree(self._arriving)
        return Taken(is_kept=True)

    def _make_way(self, target: Path, size: int) -> bool:
        """Whether there is room now; False where another program may be reading what is at the target."""
        in_use = owners_in_use(self._folder, but=self._lease_folder)
        if self._owner in in_use and target.exists():
            return False
        make_room(self._folder.cache, self._owner, size, bytes_max=self._bytes_max, in_use=in_use)
        return True


def take_entries(folder: DataFolder, lease_folder: Path, work: Path, *, bytes_max: int) -> list[str]:
    """Take what a training left, and note what it used; lines for its log. Blocks.

    Nothing where the lease has no owner, or the cache no room. Raises OSError where the disk takes no more.
    """
    owner = load_owner(lease_folder)
    if not owner or bytes_max == 0:
        return []
    lines, until = [], time.monotonic() + LOOK_SECONDS_MAX
    intake = Intake(folder, lease_folder, owner, bytes_max=bytes_max)
    _note_used(owner_folder(folder, owner), work)
    fetched = load_fetched(lease_folder)  # another node made these: the cache has what was made here alone
    made = (left for left in find_left(work, until=until) if not was_fetched(left, read_manifest(work, left), fetched))
    for left in islice(made, ENTRIES_TAKEN_MAX):
        taken = intake.take(work, left)
        if taken.why_not:
            size = left.size // MIB
            lines.append(f"not kept in this node's cache: {left.kind} of {size} MiB, because {taken.why_not}")
        elif taken.is_kept:
            lines.append(f"kept in this node's cache for later jobs of yours: {left.kind}, {left.size // MIB} MiB")
    return lines


def keep_fetched(lease_folder: Path, digests: Mapping[str, str]) -> None:
    """Note which entries come from the artifact store, with the SHA-256 of their manifests."""
    lines = [f"{name} {digest}" for name, digest in digests.items()]
    write_atomically(lease_folder / FETCHED_NAME, "\n".join(lines).encode())


def load_fetched(lease_folder: Path) -> dict[str, str]:
    """Which entries came from the artifact store, KIND/KEY, with the SHA-256 of their manifests."""
    try:
        with (lease_folder / FETCHED_NAME).open("rb") as file:
            lines = file.read(FETCHED_BYTES_MAX).decode().splitlines()
    except (OSError, ValueError):
        return {}
    return {name: digest for name, _, digest in (line.partition(" ") for line in lines)}


def was_fetched(left: Left, manifest: bytes, fetched: Mapping[str, str]) -> bool:
    """Whether this is what came from the store still: a program makes a bad entry anew, under the same name."""
    return fetched.get(left.name) == hashlib.sha256(manifest).hexdigest()


def read_manifest(work: Path, left: Left) -> bytes:
    """An entry's manifest, as far as one in the store may be long; empty where it is longer, or cannot be read."""
    try:
        descriptor = _open(work, PurePath(NEW_CACHE_NAME, left.kind, left.key), MANIFEST_NAME)
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = file.read(PREPARED_MANIFEST_BYTES_MAX + 1) if is_file else b""
    except OSError:
        return b""
    return data if len(data) <= PREPARED_MANIFEST_BYTES_MAX else b""


def find_left(work: Path, *, until: float) -> Iterator[Left]:
    """Every complete entry of a training below its work folder, as far as folders and files have plain names.

    In the first FOLDERS_MAX folders alone, and until `until` by the monotonic clock: a program may leave a million.
    """
    looked = count()
    for kind in _names(work, PurePath(NEW_CACHE_NAME), folders=True):
        if next(looked) >= FOLDERS_MAX or time.monotonic() > until:
            return
        if not CACHE_KIND.fullmatch(kind) or kind == ENVIRONMENT_KIND:
            continue
        for key in _names(work, PurePath(NEW_CACHE_NAME, kind), folders=True):
            if next(looked) >= FOLDERS_MAX or time.monotonic() > until:
                return
            sizes = _names(work, PurePath(NEW_CACHE_NAME, kind, key), folders=False) if CACHE_KEY.fullmatch(key) else {}
            if MANIFEST_NAME in sizes and len(sizes) <= FILES_MAX and not any(map(file_name_mistake, sizes)):
                yield Left(kind, key, sizes)


def file_sizes(work: Path, relative: PurePath) -> dict[str, int]:
    """Of the regular files in one folder below a work folder; none behind a link."""
    return _names(work, relative, folders=False)


def _names(work: Path, relative: PurePath, *, folders: bool) -> dict[str, int]:
    """Names of the folders in one folder, or of its regular files, with their sizes; none behind a link."""
    wanted = stat.S_ISDIR if folders else stat.S_ISREG
    try:
        descriptor = open_below(work, relative)
    except OSError:
        return {}
    try:
        with os.scandir(descriptor) as entries:
            found = {each.name: each.stat(follow_symlinks=False) for each in islice(entries, NAMES_SEEN_MAX)}
    except OSError:
        return {}
    finally:
        os.close(descriptor)
    return {name: status.st_size for name, status in sorted(found.items()) if wanted(status.st_mode)}


def _copy(work: Path, left: Left, arriving: Path, *, until: float) -> None:
    """Every file of the entry."""
    remove_tree(arriving)
    arriving.mkdir(parents=True)
    for name, size in left.sizes.items():
        _copy_file(work, PurePath(NEW_CACHE_NAME, left.kind, left.key), name, size, arriving / name, until=until)


def _place(arriving: Path, target: Path) -> None:
    """What was there before goes."""
    target.parent.mkdir(exist_ok=True)
    for folder in (target.parent, arriving):
        folder.chmod(0o755)  # a container's user reads it; above them is the agent's own folder
    remove_entry(target)
    arriving.rename(target)


def _open(work: Path, below: PurePath, name: str) -> int:
    """A descriptor of what has that name, not through a link."""
    folder = open_below(work, below)
    try:
        return os.open(name, OPEN_FILE, dir_fd=folder)
    finally:
        os.close(folder)


def _copy_file(work: Path, below: PurePath, name: str, size: int, target: Path, *, until: float) -> None:
    try:
        descriptor = _open(work, below, name)
    except OSError as error:
        raise TornError(f"{name} cannot be read") from error
    with os.fdopen(descriptor, "rb", buffering=0) as source, target.open("xb") as out:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TornError(f"{name} is no regular file")
        missing = size
        while missing > 0 and (chunk := source.read(min(COPY_BYTES, missing))):
            if time.monotonic() > until:
                raise TornError(f"copying takes more than {COPY_SECONDS_MAX:.0f} s")
            out.write(chunk)
            missing -= len(chunk)
        if missing:
            raise TornError(f"{name} became shorter")
        os.fchmod(out.fileno(), 0o444)


def _note_used(own: Path, work: Path) -> None:
    """What the program used goes later than what it did not."""
    if CACHE_USED_NAME not in _names(work, PurePath(NEW_CACHE_NAME), folders=False):
        return
    noted = read_bytes(work / NEW_CACHE_NAME / CACHE_USED_NAME, 0, CACHE_USED_BYTES_MAX)
    for line in noted.decode(errors="replace").splitlines():
        kind, _, key = line.partition("/")
        folder = own / kind / key
        if CACHE_KIND.fullmatch(kind) and CACHE_KEY.fullmatch(key) and folder.is_dir():
            with suppress(FileNotFoundError):  # removed meanwhile
                os.utime(folder, follow_symlinks=False)
