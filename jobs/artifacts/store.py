"""Where the bytes of artifacts are: the interface of a store. `choice.py` picks the one that the settings name.

    begin_upload      addresses for the parts of one file; whoever holds an address PUTs the bytes, no key needed
    finish_upload     the file is there in full, or UploadIncomplete
    url_for_download  an address to GET it from
    read              its first bytes, where the server looks into it
    chunks            all its bytes, a piece at a time, as the second store is filled from them
    write             the file is there, in place of whatever was: from this server, without an address
    sizes             what is there
    delete_prefix     gone, also what was half uploaded

Keys are made here, from ids and numbers alone; no name that anybody else chose ever becomes part of a path.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

PART_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
FILE_BYTES_MAX = 256 * 1024**3
UPLOAD_URL_SECONDS = 6 * 3600
DOWNLOAD_URL_SECONDS = 6 * 3600

_KEY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,5}/[0-9]{6}")


@dataclass(frozen=True)
class Part:
    """PUT the `size` bytes from `offset` of the file to `url`; the answer's ETag goes into `finish_upload`."""

    number: int  # from 1
    offset: int
    size: int
    url: str


@dataclass(frozen=True)
class Upload:
    """An upload that has begun; `upload_id` is the store's name for it, empty where it needs none."""

    upload_id: str
    parts: list[Part]


@dataclass(frozen=True)
class Stored:
    """A file that is there in full; `sha256` only where the store has computed it from the bytes."""

    size: int
    sha256: str | None


class Store(ABC):
    """The one interface of both stores. No method may be called inside a transaction: some wait for a network."""

    part_bytes: int = PART_BYTES

    @abstractmethod
    def begin_upload(self, key: str, size: int, *, upload_id: str = "") -> Upload:
        """Addresses for every part; with the `upload_id` of before, new addresses for the same upload."""

    @abstractmethod
    def finish_upload(self, key: str, size: int, etags: Sequence[str], *, upload_id: str = "") -> Stored:
        """The file of exactly `size` bytes is there; repeating it is harmless. Raises UploadIncomplete.

        ETags are needed to put parts together, not for a file that is there already.
        """

    @abstractmethod
    def url_for_download(self, key: str, *, until: datetime) -> str:
        """An address that serves the bytes, and ranges of them, until it expires."""

    @abstractmethod
    def read(self, key: str, bytes_max: int) -> bytes:
        """The first `bytes_max` bytes of a finished file; raises UploadIncomplete where there is none."""

    @abstractmethod
    def chunks(self, key: str) -> Iterator[bytes]:
        """A finished file in pieces of CHUNK_BYTES at most; raises UploadIncomplete where there is none."""

    @abstractmethod
    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """The file is what `chunks` gives, or, where that raises, what it was before: never a half of it.

        Holds a few times `part_bytes` in memory at most, however large the file is.
        """

    @abstractmethod
    def sizes(self, prefix: str) -> dict[str, int]:
        """Key -> bytes of every finished file below `prefix`."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """The file is gone; it may have been gone before."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Everything below `prefix` is gone, half uploads too."""

    def plan_parts(self, size: int) -> list[tuple[int, int, int]]:
        """(number, offset, size) of each part; an empty file has one empty part."""
        starts = range(0, max(size, 1), self.part_bytes)
        return [(number, start, min(self.part_bytes, size - start)) for number, start in enumerate(starts, start=1)]


def key_for(artifact_id: UUID, node_rank: int, index: int) -> str:
    """The key of the file at `index` of one node's list."""
    return f"{artifact_id}/{node_rank}/{index:06d}"


def prefix_for(artifact_id: UUID, node_rank: int | None = None) -> str:
    """What the keys of an artifact, or of one node's part of it, begin with."""
    return f"{artifact_id}/" if node_rank is None else f"{artifact_id}/{node_rank}/"


def artifact_of(key: str) -> UUID:
    """The id of the artifact that a key is of; raises ValueError for what was not made here."""
    return UUID(checked_key(key).split("/", maxsplit=1)[0])


def is_key(text: str) -> bool:
    """Whether `text` is a key that `key_for` can have made."""
    return _KEY.fullmatch(text) is not None


def checked_key(key: str) -> str:
    """The key itself; raises ValueError for what was not made here."""
    if not is_key(key):
        raise ValueError(f"{key!r} is not a key")
    return key
