"""What this computer remembers of uploads that were begun, so that the next command goes on with them.

A file for each list of files and server, beside the settings. Whoever loses it sends the files again, no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from pydantic import BaseModel, Field, ValidationError

from jobs.client.settings import settings_path, write_private
from provider_agent.protocol import ArtifactFile, UploadPart

KEEP_SECONDS = 24 * 3600  # the server gives up an input whose upload has not ended by then
FILE_BYTES_MAX = 16 << 20


class _Remembered(BaseModel):
    """One upload; `etags` only of files of several parts."""

    key: str = Field(default_factory=lambda: str(uuid4()))  # its Idempotency-Key
    artifact_id: UUID | None = None
    begun_at: float = Field(default_factory=time.time)
    etags: dict[str, dict[int, str]] = Field(default_factory=dict)  # path -> number of the part -> ETag


class BegunUpload:
    """The upload of one list of files to one server, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now = _load(path)

    @property
    def key(self) -> str:
        """The Idempotency-Key under which the server knows it."""
        return self._now.key

    def is_of(self, artifact_id: UUID) -> None:
        """The server named its artifact; parts that were put to another one count no more."""
        if self._now.artifact_id != artifact_id:
            self._now.artifact_id, self._now.etags = artifact_id, {}
            self._save()

    def has(self, path: str, part: UploadPart) -> bool:
        """Whether the part was put."""
        return part.number in self._now.etags.get(path, {})

    def etag(self, path: str, part: UploadPart) -> str:
        """The ETag of a part that was put."""
        return self._now.etags[path][part.number]

    def remember(self, path: str, part: UploadPart, etag: str) -> None:
        """The part was put."""
        self._now.etags.setdefault(path, {})[part.number] = etag
        self._save()

    def drop(self, paths: Iterable[str]) -> None:
        """Nothing of these files counts as put."""
        for path in paths:
            self._now.etags.pop(path, None)
        self._save()

    def begin_anew(self) -> None:
        """The server has given up this upload."""
        self._now = _Remembered()
        self._save()

    def forget(self) -> None:
        """Nothing is to go on with."""
        self._path.unlink(missing_ok=True)

    def _save(self) -> None:
        write_private(self._path, self._now.model_dump_json())


def begun_upload(server: str, files: Sequence[ArtifactFile]) -> BegunUpload:
    """What is remembered of this upload, or the beginning of a new one; what is too old is dropped."""
    folder = settings_path().with_name("uploads")
    _drop_old(folder)
    listed = json.dumps([server, [file.model_dump(mode="json") for file in files]], sort_keys=True)
    return BegunUpload(folder / f"{hashlib.sha256(listed.encode()).hexdigest()}.json")


def _load(path: Path) -> _Remembered:
    """A damaged file is worth as much as none."""
    try:
        with path.open("rb") as opened:
            found = _Remembered.model_validate_json(opened.read(FILE_BYTES_MAX))
    except (OSError, ValidationError):
        return _Remembered()
    return found if time.time() - found.begun_at < KEEP_SECONDS else _Remembered()


def _drop_old(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.glob("*.json"):
            if time.time() - path.stat().st_mtime > KEEP_SECONDS:
                path.unlink(missing_ok=True)
