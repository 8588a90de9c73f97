"""Which store a file is read from: the first one, or the second where the first has lost or changed it.

    before an address is made   one listing of the first store: what is missing there, or has another size, comes from
                                the copy, and so does everything while the first store does not answer: that says
                                nothing of the bytes, so nobody suspects them, and it is asked again after
                                AWAY_SECONDS only
    while bytes are sent        the local store's page hashes a whole file as it goes out; a wrong sum is noted, and
                                the next request for it is answered from the copy
    after they came             whoever fetched says so (`damaged` in the request for addresses): a bucket's bytes go
                                past this server, and it sees none of them

All that is noted of bytes is that the artifact is suspected; `copies` reads both stores for it and repairs either.
Without a copy nothing of this costs anything, and nothing changes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final
from weakref import WeakKeyDictionary

from jobs.artifacts import copies
from jobs.artifacts.choice import get_second_store, get_store, second_store_name
from jobs.artifacts.local import LocalStore
from jobs.artifacts.store import Store, artifact_of, key_for, prefix_for
from jobs.models import Artifact, ArtifactCopy, ArtifactPart

AWAY_SECONDS: Final = 30.0  # a store that did not answer is not asked for a listing again before: each would wait

log = logging.getLogger(__name__)

_away_until: WeakKeyDictionary[Store, float] = WeakKeyDictionary()  # by time.monotonic(), of this process

Choose = Callable[[str], Store]


def stores_for(artifact: Artifact, parts: Iterable[ArtifactPart], *, is_damaged: bool = False) -> Choose:
    """Key -> the store whose address is to be given; asks the stores only where there is a copy.

    `is_damaged`: whoever asks got other bytes than announced, and is sent to the copy whether that is noted or not.
    """
    first, copy = get_store(), copy_of(artifact)
    second = _second() if copy is not None else None
    if copy is None or second is None:
        return lambda key: first
    wanted = {
        key_for(artifact.pk, part.node_rank, at): file["size"] for part in parts for at, file in enumerate(part.files)
    }
    is_suspected = copy.suspected_at is not None or is_damaged
    there = {} if is_suspected else _sizes(first, artifact)
    lost = {key for key, size in wanted.items() if there is None or there.get(key) != size}
    if not lost:
        return lambda key: first
    if there is not None and not is_suspected:
        copies.suspect(artifact.pk, is_measured=True)
    copied = _sizes(second, artifact) or {}
    better = {key for key in lost if copied.get(key) == wanted[key]}
    return lambda key: second if key in better else first


def copy_of(artifact: Artifact) -> ArtifactCopy | None:
    """Its copy in the second store of the settings, where it is whole."""
    if not (name := second_store_name()):
        return None
    return ArtifactCopy.objects.filter(pk=artifact.pk, store=name, copied_at__isnull=False).first()


def open_local(key: str) -> BinaryIO | None:
    """A file of a store on this server's disk: of the first, unless that is suspected, else of the second."""
    first = get_store()
    opened = first.open_file(key) if isinstance(first, LocalStore) else None
    if not second_store_name():
        return opened
    artifact_id = artifact_of(key)
    copied = ArtifactCopy.objects.filter(pk=artifact_id, store=second_store_name(), copied_at__isnull=False)
    if opened is not None and not copied.exists():
        return opened
    if opened is None and isinstance(first, LocalStore):
        copies.suspect(artifact_id, is_measured=True)
    if opened is not None and not copied.filter(suspected_at__isnull=False).exists():
        note = partial(copies.suspect, artifact_id, is_measured=True)
        return _Hashed(opened, note)  # type: ignore[return-value]  # what is read of it
    second = _second()
    from_copy = second.open_file(key) if isinstance(second, LocalStore) else None
    if from_copy is None:
        return opened
    if opened is not None:
        opened.close()
    return from_copy


class _Hashed:
    """A file that is hashed as it is read from its beginning to its end; `on_wrong` where it is not what its name says.

    The store names a file by its SHA-256. Whoever reads a range learns nothing.
    """

    def __init__(self, source: BinaryIO, on_wrong: Callable[[], object]) -> None:
        self._source, self._on_wrong = source, on_wrong
        self._digest, self._hashed = hashlib.sha256(), 0

    def fileno(self) -> int:
        return self._source.fileno()

    def seek(self, offset: int) -> int:
        return self._source.seek(offset)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        at = self._source.tell()
        piece = self._source.read(size)
        if at == self._hashed:
            self._digest.update(piece)
            self._hashed += len(piece)
        return piece

    def close(self) -> None:
        """Close the file, and say so if all of it was read and is wrong."""
        if self._source.closed:
            return
        is_whole = self._hashed == self._size()
        self._source.close()
        if is_whole and self._digest.hexdigest() != Path(self._source.name).name:
            self._on_wrong()

    def _size(self) -> int:
        return os.fstat(self._source.fileno()).st_size


def _second() -> Store | None:
    try:
        return get_second_store()
    except OSError:
        log.exception("The second store is away.")
        return None


def _sizes(store: Store, artifact: Artifact) -> dict[str, int] | None:
    """What a store has of an artifact; None where it does not answer, or did not AWAY_SECONDS ago."""
    if time.monotonic() < _away_until.get(store, 0.0):
        return None
    try:
        return store.sizes(prefix_for(artifact.pk))
    except Exception:
        log.exception("A store did not list an artifact.", extra={"artifact_id": str(artifact.pk)})
        _away_until[store] = time.monotonic() + AWAY_SECONDS
        return None
