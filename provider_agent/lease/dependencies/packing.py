"""Packs an installed Python environment into one archive, and unpacks it into a new one, wherever that lies.

    pack ENVIRONMENT TARGET BYTES_MAX   one file, and a line for the log with its SHA-256
    unpack ENTRY ENVIRONMENT            only what has the digest of the entry's manifest

It runs in the program's sandbox, by the environment's own interpreter, which may be as old as Python 3.8 in an
image of a customer's: the standard library alone, and nothing of ours. The agent sends its text.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import sys
import tarfile
import time
from pathlib import Path, PurePosixPath
from typing import IO, Iterator, List, cast  # noqa: UP035 - Python 3.8

ARCHIVE_NAME, MANIFEST_NAME = "environment.tar", "MANIFEST.json"
ABOUT_NAME = ".souk-environment.json"  # the first member: where the environment lay, and how many packages it has
BASE_PATHS_NAME = "_souk_base.pth"
ASIDE_NAME = ".souk-before"  # beside site-packages: what lay in it, until all is unpacked
MADE_ANEW = frozenset({"pyvenv.cfg", "lib64", ABOUT_NAME})  # each environment has its own
FILES_MAX = 500_000
MANIFEST_BYTES_MAX = 1 << 20
TEXT_BYTES_MAX = 1 << 20  # scripts and the like, which name the folder that they were installed into
CHUNK_BYTES = 1 << 20
NOT_DONE = 3  # an exit code that a broken interpreter does not end with
FREE_FACTOR = 3  # so many times its size must be free on the disk: the command needs some, too


class NotUsableError(Exception):
    """This environment cannot be packed, or unpacked; the message says why."""


class HashingWriter:
    """A file to write to; the SHA-256 of what was written."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self.digest = out, hashlib.sha256()

    def write(self, chunk: bytes) -> int:
        """As a file's."""
        self.digest.update(chunk)
        return self._out.write(chunk)


def main(words: List[str]) -> int:  # noqa: UP006 - Python 3.8
    """0 where it was done, NOT_DONE where it was not, and in both cases a line in the log."""
    is_packing = words[0] == "pack"
    try:
        line = pack(Path(words[1]), Path(words[2]), int(words[3])) if is_packing else unpack(*map(Path, words[1:3]))
    except Exception as error:  # whatever it is, the packages are installed as without it
        why = str(error) if isinstance(error, NotUsableError) else type(error).__name__
        prefix = "environment not packed" if is_packing else "the environment kept on this node is not used"
        print(f"[souk] {prefix}: {why}", flush=True)  # noqa: T201
        return NOT_DONE
    print(f"[souk] {line}", flush=True)  # noqa: T201
    return 0


def pack(environment: Path, target: Path, bytes_max: int) -> str:
    """Write the archive, whole or not at all; returns the line for the log."""
    files = sorted(_files(environment))
    size = sum(os.lstat(environment / path).st_size + tarfile.BLOCKSIZE for path in files)
    if size > bytes_max:
        raise NotUsableError(f"it has {size >> 20} MiB, and {bytes_max >> 20} MiB are the most that is kept")
    target.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(target.parent).free < FREE_FACTOR * size:
        raise NotUsableError("the disk has too little free space")
    packages = sum(_is_package(path) for path in files)
    about = json.dumps({"environment": str(environment), "packages": packages}).encode()
    partial = target.with_name(target.name + ".partial")
    with partial.open("wb") as out:
        hashing = HashingWriter(out)
        with tarfile.open(fileobj=cast("IO[bytes]", hashing), mode="w|", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, ABOUT_NAME, io.BytesIO(about), size=len(about), mode=0o644, mtime=0)
            for path in files:
                with (environment / path).open("rb") as source:
                    found = os.fstat(source.fileno())
                    mode, mtime = found.st_mode & 0o755, int(found.st_mtime)
                    _add(archive, str(path), source, size=found.st_size, mode=mode, mtime=mtime)
    partial.replace(target)
    return f"environment of {counted(packages)} packed: sha256 {hashing.digest.hexdigest()}"


def unpack(entry: Path, environment: Path) -> str:
    """Put the files into a new environment; returns the line for the log. Where it fails, none of them is left.

    What the new one has in site-packages goes: of pip in another version, half of each would be left.
    """
    began = time.monotonic()
    archive = entry / ARCHIVE_NAME
    with (entry / MANIFEST_NAME).open("rb") as source:
        listed = json.loads(source.read(MANIFEST_BYTES_MAX))["files"]
    if [each["path"] for each in listed] != [ARCHIVE_NAME] or _sha256(archive) != listed[0]["sha256"]:
        raise NotUsableError("its digest is another one than when it was made")
    written: List[Path] = []  # noqa: UP006 - Python 3.8
    sites = sorted(environment.glob("lib/python*/site-packages"))
    try:
        for site in sites:
            _move(site, site.with_name(ASIDE_NAME))
        packages = _unpack(archive, environment, written)
        if any((site.with_name(ASIDE_NAME) / "pip").is_dir() and not (site / "pip").is_dir() for site in sites):
            raise NotUsableError("it has no pip")
    except BaseException:
        for path in written:
            if os.path.lexists(path):
                path.unlink()
        for site in sites:
            _restore(site)
        raise
    for site in sites:
        shutil.rmtree(site.with_name(ASIDE_NAME))
    return f"environment of {counted(packages)} found on this node ({time.monotonic() - began:.1f} s)"


def _move(source: Path, target: Path) -> None:
    """Everything in a folder but the paths that the launcher wrote."""
    target.mkdir(exist_ok=True)
    for path in list(source.iterdir()):
        if path.name != BASE_PATHS_NAME:
            path.rename(target / path.name)


def _restore(site: Path) -> None:
    """What was moved aside is there again, for pip to go on with; folders that were made meanwhile are not."""
    aside = site.with_name(ASIDE_NAME)
    if not aside.is_dir():
        return
    for path in list(aside.iterdir()):
        if (site / path.name).is_dir():
            shutil.rmtree(site / path.name)
    _move(aside, site)
    aside.rmdir()


def counted(packages: int) -> str:
    """In words."""
    return f"{packages} package{'' if packages == 1 else 's'}"


def _files(environment: Path) -> Iterator[PurePosixPath]:
    """Every regular file by its path below the environment, but those that each environment has of its own."""
    count = 0
    for folder, folders, names in os.walk(environment):
        below = PurePosixPath(os.path.relpath(folder, environment))
        for name in folders + names:
            path, mode = below / name, os.lstat(os.path.join(folder, name)).st_mode  # noqa: PTH118 - twice as fast
            if str(path) in MADE_ANEW or name == BASE_PATHS_NAME or stat.S_ISDIR(mode):
                continue
            if stat.S_ISLNK(mode) and str(below) == "bin" and name.startswith("python"):
                continue
            if not stat.S_ISREG(mode):
                raise NotUsableError(f"{path} is no regular file")
            count += 1
            if count > FILES_MAX:
                raise NotUsableError(f"it has more than {FILES_MAX} files")
            yield path


def _is_package(path: PurePosixPath) -> bool:
    """Whether this file is there once for each package; pip and setuptools may have come with the environment."""
    folder = path.parent.name
    return path.name == "METADATA" and folder.endswith(".dist-info") and not folder.startswith(("pip-", "setuptools-"))


def _add(archive: tarfile.TarFile, path: str, source: IO[bytes], *, size: int, mode: int, mtime: int) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.mtime = size, mode, mtime
    archive.addfile(member, source)


def _unpack(archive: Path, environment: Path, written: List[Path]) -> int:  # noqa: UP006 - Python 3.8
    """All files; texts that name the folder in which they were made name this one. Returns how many packages."""
    with tarfile.open(archive, mode="r:") as members:
        first = members.next()
        about = members.extractfile(first) if first is not None and first.name == ABOUT_NAME else None
        if about is None:
            raise NotUsableError(f"it has no {ABOUT_NAME}")
        body = json.loads(about.read())
        old, new = os.fsencode(body["environment"]), os.fsencode(environment)
        for member in members:
            if member.name == ABOUT_NAME:
                continue
            source = members.extractfile(member) if member.isreg() else None
            if source is None or PurePosixPath(member.name).is_absolute() or ".." in member.name.split("/"):
                raise NotUsableError(f"{member.name} is no plain file")
            path = environment / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() or path.is_symlink():
                path.unlink()
            written.append(path)
            with path.open("wb") as out:
                if old != new and member.size <= TEXT_BYTES_MAX:
                    content = source.read()
                    out.write(content if b"\0" in content else content.replace(old, new))
                else:
                    shutil.copyfileobj(source, out, CHUNK_BYTES)
            path.chmod(member.mode)
            os.utime(path, (member.mtime, member.mtime))  # compiled modules know their source by it
    return int(body["packages"])


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        for chunk in iter(lambda: source.read(CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
