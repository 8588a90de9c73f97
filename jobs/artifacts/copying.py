"""The bytes of one artifact between both stores: copied to the second one, or checked in both and repaired.

Only bytes with the announced SHA-256 are written to either store: they are hashed while they are read, and the last
piece is held back until the sum is right. A file that is there in full is not sent again, so that a copy goes on where
it stopped; a check goes on by file.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import F

from jobs.artifacts.store import Store, key_for, prefix_for
from jobs.errors import UploadIncomplete
from jobs.models import Artifact, ArtifactCopy
from jobs.models.artifacts import ERROR_CHARACTERS_MAX
from jobs.states import ArtifactState
from marketplace.foundation import clock

BUSY: Final = timedelta(minutes=10)  # a claim; renewed while bytes come, and longer than any store waits for one
RENEW_SECONDS: Final = 10.0
MIB: Final = 1024 * 1024

log = logging.getLogger(__name__)


class DamagedBytes(Exception):
    """A store's bytes are not the announced ones."""


class ArtifactGone(Exception):
    """The artifact was deleted while its bytes were copied."""


@dataclass
class Stores:
    """Both stores, and the rate at which bytes go between them."""

    first: Store
    second: Store
    ends_at: float  # no further file is begun after it, by time.monotonic()
    pace: Pace = field(default_factory=lambda: Pace(settings.SOUK_ARTIFACT_SECOND_MIB_PER_SECOND * MIB))


def copy_files(stores: Stores, row: ArtifactCopy, renew: Renewal) -> bool:
    """Send what the second store lacks; True where time ran out. Raises DamagedBytes after all others were copied."""
    damaged: list[str] = []
    present = stores.second.sizes(prefix_for(row.pk))
    for key, file in _files_of(row):
        if present.get(key) == file["size"]:
            continue
        if time.monotonic() > stores.ends_at:
            return True
        try:
            stores.second.write(key, _good(stores, stores.first, key, file, renew))
        except DamagedBytes as error:
            damaged.append(str(error))
    renew.now()
    if damaged:
        raise DamagedBytes(f"{len(damaged)} files: {damaged[0]}")
    return False


def check_files(stores: Stores, row: ArtifactCopy, renew: Renewal) -> bool:
    """Read every file in both stores and repair it, one at least; True where time ran out: `row` says how far it came.

    Raises DamagedBytes after the last file, where one was good in neither store.
    """
    for at, (key, file) in enumerate(list(_files_of(row))[row.checked_files :]):
        if at and time.monotonic() > stores.ends_at:
            return True
        try:
            _check_file(stores, row, key, file, renew)
        except DamagedBytes as error:
            row.last_error = row.last_error if row.lost_files else str(error)[:ERROR_CHARACTERS_MAX]
            row.lost_files += 1
        row.checked_files += 1
    renew.now()
    if row.lost_files:
        raise DamagedBytes(f"{row.lost_files} files: {row.last_error}")
    return False


def _files_of(row: ArtifactCopy) -> Iterator[tuple[str, dict[str, Any]]]:
    """(key, file) of all nodes' parts, always in the same order."""
    for part in row.artifact.parts.filter(is_complete=True).order_by("node_rank"):
        for index, file in enumerate(part.files):
            yield key_for(row.pk, part.node_rank, index), file


def _check_file(stores: Stores, row: ArtifactCopy, key: str, file: dict[str, Any], renew: Renewal) -> None:
    is_first, is_second = (_is_good(_good(stores, each, key, file, renew)) for each in (stores.first, stores.second))
    if not is_first and not is_second:
        raise DamagedBytes(f"{key} has other bytes than announced in both stores")
    if is_first and is_second:
        return
    source, target = (stores.first, stores.second) if is_first else (stores.second, stores.first)
    target.write(key, _good(stores, source, key, file, renew))
    ArtifactCopy.objects.filter(pk=row.pk).update(repaired_files=F("repaired_files") + 1)
    log.warning("A file was repaired. key=%s in=%s", key, "the second store" if is_first else "the first store")


def _good(stores: Stores, store: Store, key: str, file: dict[str, Any], renew: Renewal) -> Iterator[bytes]:
    return renew.during(stores.pace.limit(_verified(store, key, file["size"], file["sha256"])))


def _is_good(chunks: Iterable[bytes]) -> bool:
    """Whether a store has the announced bytes. One that does not answer is an error, not a verdict."""
    try:
        for _ in chunks:
            pass
    except DamagedBytes:
        return False
    return True


def _verified(store: Store, key: str, size: int, sha256: str) -> Iterator[bytes]:
    """A file's bytes; raises DamagedBytes for others than announced, or none, before the last piece is given."""
    digest, seen, held = hashlib.sha256(), 0, b""
    try:
        for chunk in store.chunks(key):
            digest.update(chunk)
            seen += len(chunk)
            if seen > size:
                raise DamagedBytes(f"{key} is longer than announced")
            if held:
                yield held
            held = chunk
    except UploadIncomplete as error:
        raise DamagedBytes(f"{key} is missing") from error
    if seen != size or digest.hexdigest() != sha256:
        raise DamagedBytes(f"{key} has other bytes than announced")
    yield held


class Pace:
    """So many bytes a second at most, over all that goes through it."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate, self._free_at = bytes_per_second, time.monotonic()

    def limit(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes, not faster."""
        for chunk in chunks:
            now = time.monotonic()
            if (wait := self._free_at - now) > 0:
                time.sleep(wait)
            self._free_at = max(self._free_at, now) + len(chunk) / self._rate
            yield chunk


class Renewal:
    """Keeps a claim while its bytes come; raises ArtifactGone once nobody wants them."""

    def __init__(self, artifact_id: UUID) -> None:
        self._artifact_id, self._at = artifact_id, time.monotonic()

    def now(self) -> None:
        """Renew at once."""
        if not is_complete(self._artifact_id):
            raise ArtifactGone()
        mine = ArtifactCopy.objects.filter(pk=self._artifact_id)
        if not mine.update(busy_until=clock.now() + BUSY):
            raise ArtifactGone()
        self._at = time.monotonic()

    def during(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes, with a renewal now and then."""
        for chunk in chunks:
            if time.monotonic() > self._at + RENEW_SECONDS:
                self.now()
            yield chunk


def is_complete(artifact_id: UUID) -> bool:
    """Whether the artifact is still wanted."""
    return Artifact.objects.filter(pk=artifact_id, state=ArtifactState.COMPLETE).exists()
