"""The store on this server's disk: for embedded mode, and for one server without object storage.

    objects/KEY/<sha256>      a finished file: a folder that holds one file, named by what it contains
    uploading/KEY/<number>    parts of a file that has several
    uploading/tmp-*           bytes that are just arriving

A folder is moved into place in one step and only where there is none, so that a finished file never changes, and its
SHA-256 is known without reading it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from jobs.artifacts.links import Link, link_secret, url_for_link
from jobs.artifacts.store import (
    CHUNK_BYTES,
    PART_BYTES,
    UPLOAD_URL_SECONDS,
    Part,
    Store,
    Stored,
    Upload,
    checked_key,
    is_key,
)
from jobs.errors import AlreadyStored, UploadBusy, UploadIncomplete, UploadRefused
from marketplace.foundation import clock

ALONE_SECONDS_MAX = 15.0  # below what an agent waits for an answer
ALONE_POLL_SECONDS = 0.2
RETRY_AFTER_SECONDS = 5


class LocalStore(Store):
    """Files below one folder; addresses lead to jobs.artifacts.views."""

    def __init__(self, folder: Path, *, base_url: str, secret: bytes, part_bytes: int = PART_BYTES) -> None:
        self.part_bytes = part_bytes
        self.secret = secret
        self._base_url = base_url
        self._objects = folder / "objects"
        self._uploading = folder / "uploading"

    @classmethod
    def from_settings(cls) -> LocalStore:
        """Below SOUK_DATA."""
        return cls(Path(settings.SOUK_DATA) / "artifacts", base_url=settings.SOUK_API_URL, secret=link_secret())

    @classmethod
    def second_from_settings(cls) -> LocalStore:
        """Below SOUK_ARTIFACT_SECOND_FOLDER; the same addresses lead to both."""
        folder = Path(settings.SOUK_ARTIFACT_SECOND_FOLDER)
        return cls(folder, base_url=settings.SOUK_API_URL, secret=link_secret())

    # --- the interface

    def begin_upload(self, key: str, size: int, *, upload_id: str = "") -> Upload:
        until = clock.now() + timedelta(seconds=UPLOAD_URL_SECONDS)
        planned = self.plan_parts(size)
        links = [Link("PUT", checked_key(key), until, number, len(planned), length) for number, _, length in planned]
        urls = [url_for_link(self._base_url, link, self.secret) for link in links]
        return Upload("", [Part(*place, url) for place, url in zip(planned, urls, strict=True)])

    def finish_upload(self, key: str, size: int, etags: Sequence[str], *, upload_id: str = "") -> Stored:
        if self._find(key) is None:
            with self._alone(key):
                if self._find(key) is None:  # else another request has put it together meanwhile
                    self._put_together(key, size, etags)
        path = self._find(key)
        if path is None or path.stat().st_size != size:
            raise UploadIncomplete(key=key)
        return Stored(size, path.name)

    def url_for_download(self, key: str, *, until: datetime) -> str:
        return url_for_link(self._base_url, Link("GET", checked_key(key), until), self.secret)

    def read(self, key: str, bytes_max: int) -> bytes:
        file = self.open_file(key)
        if file is None:
            raise UploadIncomplete(key=key)
        with file:
            return file.read(bytes_max)

    def chunks(self, key: str) -> Iterator[bytes]:
        path = self._find(key)
        if path is None:
            raise UploadIncomplete(key=key)
        yield from _chunks_of(path)

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        with self._arriving() as arriving:
            arriving.take(chunks)
            place = self._objects / checked_key(key)
            with tempfile.TemporaryDirectory(prefix="tmp-", dir=self._uploading) as old:
                if place.is_dir():  # a finished file never changes by an upload; this call replaces it on purpose
                    place.rename(Path(old) / "replaced")
                self._publish(key, arriving)

    def sizes(self, prefix: str) -> dict[str, int]:
        folder = self._below(self._objects, prefix)
        found = (path for path in folder.rglob("*") if path.is_file())
        return {path.parent.relative_to(self._objects).as_posix(): path.stat().st_size for path in found}

    def delete(self, key: str) -> None:
        self.delete_prefix(checked_key(key))

    def delete_prefix(self, prefix: str) -> None:
        for root in (self._objects, self._uploading):
            shutil.rmtree(self._below(root, prefix), ignore_errors=True)

    # --- what the views do for the holder of an address

    def put_part(self, link: Link, chunks: Iterable[bytes]) -> str:
        """Take the bytes of one part, all or nothing; returns their ETag. The same bytes may come again."""
        with self._arriving() as arriving:
            etag = arriving.take(chunks, bytes_max=link.size)
            if arriving.size != link.size:
                raise UploadRefused(expected=link.size, given=arriving.size)
            if link.count == 1:
                self._publish(link.key, arriving)
            else:
                arriving.close()
                part = self._part(link.key, link.number)
                part.parent.mkdir(parents=True, exist_ok=True)
                arriving.path.replace(part)
        return etag

    def open_file(self, key: str) -> BinaryIO | None:
        """The finished file, open for reading; None when there is none."""
        path = self._find(checked_key(key))
        return path.open("rb") if path else None

    # --- below

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """The one request that puts this file together, which takes minutes and as much room again for a large one.

        Whoever asks meanwhile, because no answer came in time, waits a little. Raises UploadBusy, and UploadIncomplete
        where there is no part.
        """
        try:
            folder = os.open(self._uploading / checked_key(key), os.O_RDONLY)
        except FileNotFoundError:
            if self._find(key) is None:
                raise UploadIncomplete(key=key) from None
            yield
            return
        try:
            until = time.monotonic() + ALONE_SECONDS_MAX
            while not _has_locked(folder):
                if time.monotonic() > until:
                    raise UploadBusy(retry_after_seconds=RETRY_AFTER_SECONDS)
                time.sleep(ALONE_POLL_SECONDS)
            yield
        finally:
            os.close(folder)  # unlocks it

    def _put_together(self, key: str, size: int, etags: Sequence[str]) -> None:
        """Raises UploadIncomplete, also where the artifact is given up meanwhile and its parts are deleted."""
        parts = [self._part(key, number) for number, _, _ in self.plan_parts(size)]
        if len(parts) == 1 or not all(part.is_file() for part in parts):
            raise UploadIncomplete(key=key)
        with self._arriving() as arriving:
            try:
                found = [arriving.take(_chunks_of(part)) for part in parts]
            except FileNotFoundError as error:
                raise UploadIncomplete(key=key) from error
            if list(etags) != found:
                raise UploadIncomplete(key=key)
            self._publish(key, arriving)
        shutil.rmtree(self._uploading / key, ignore_errors=True)

    def _find(self, key: str) -> Path | None:
        folder = self._objects / checked_key(key)
        return next(iter(folder.iterdir()), None) if folder.is_dir() else None

    def _part(self, key: str, number: int) -> Path:
        return self._uploading / checked_key(key) / f"{number:05d}"

    def _below(self, root: Path, prefix: str) -> Path:
        if not is_key(prefix):
            # A prefix of a key ends where one of its parts does.
            ends = ("0/000000", "000000") if prefix.endswith("/") else ()
            if not any(is_key(prefix + end) for end in ends):
                raise ValueError(f"{prefix!r} is not the beginning of a key")
        return root / prefix

    @contextmanager
    def _arriving(self) -> Iterator[_Arriving]:
        self._uploading.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="tmp-", dir=self._uploading))
        arriving = _Arriving(folder)
        try:
            yield arriving
        finally:
            arriving.file.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _publish(self, key: str, arriving: _Arriving) -> None:
        """Move the file into place; the same file may be there already, another one may not."""
        sha256 = arriving.close()
        arriving.path.rename(arriving.folder / sha256)
        place = self._objects / checked_key(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            arriving.folder.rename(place)
        except OSError as error:  # a folder that is not empty is there
            found = self._find(key)
            if found is None:
                raise
            if found.name != sha256:
                raise AlreadyStored() from error
        _sync_folder(place.parent)


class _Arriving:
    """Bytes on their way to the disk, hashed as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bytes"
        self.file = self.path.open("wb")
        self.size = 0
        self._whole = hashlib.sha256()

    def take(self, chunks: Iterable[bytes], *, bytes_max: int | None = None) -> str:
        """Write `chunks`; returns the SHA-256 of just these. Stops one chunk after `bytes_max`."""
        digest = hashlib.sha256()
        for chunk in chunks:
            self.size += len(chunk)
            if bytes_max is not None and self.size > bytes_max:
                break
            digest.update(chunk)
            self._whole.update(chunk)
            self.file.write(chunk)
        return digest.hexdigest()

    def close(self) -> str:
        """Everything is on the disk; returns the SHA-256 of all that came."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return self._whole.hexdigest()


def _chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def _has_locked(descriptor: int) -> bool:
    """Whether the lock is ours now; a process that ends gives it back."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
