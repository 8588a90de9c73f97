"""The SHA-256 of S3 objects that were read before, so that a put that was cut off does not read them again.

A file for each address, beside the settings. An object counts as the same while key, ETag and size are. Whoever loses
the file reads the objects again, no more; and the server compares what arrives with the SHA-256 in any case.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from jobs.client.settings import settings_path, write_private

FILE_BYTES_MAX = 16 << 20
SAVE_SECONDS = 5.0  # between two writes of the file


class _Read(BaseModel):
    etag: str
    size: int
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Known(BaseModel):
    objects: dict[str, _Read] = Field(default_factory=dict)  # key -> what was read


class ReadKeys:
    """What is known of the objects below one address. Several threads may use it."""

    def __init__(self, address: str) -> None:
        name = hashlib.sha256(address.encode()).hexdigest()
        self._path: Path = settings_path().with_name("read-objects") / f"{name}.json"
        self._known = _load(self._path)
        self._lock = threading.Lock()
        self._saved_at = time.monotonic()

    def find(self, key: str, *, etag: str, size: int) -> str | None:
        """The SHA-256 of an object that has not changed since."""
        with self._lock:
            found = self._known.objects.get(key)
        return found.sha256 if found is not None and (found.etag, found.size) == (etag, size) else None

    def remember(self, key: str, *, etag: str, size: int, sha256: str) -> None:
        """The object was read."""
        with self._lock:
            self._known.objects[key] = _Read(etag=etag, size=size, sha256=sha256)
            is_due = time.monotonic() - self._saved_at > SAVE_SECONDS
        if is_due:
            self.save()

    def save(self) -> None:
        """Write down what was read."""
        with self._lock:
            text = json.dumps(self._known.model_dump())
            self._saved_at = time.monotonic()
            if len(text) <= FILE_BYTES_MAX:
                write_private(self._path, text)

    def forget(self) -> None:
        """The objects are a volume now."""
        self._path.unlink(missing_ok=True)


def _load(path: Path) -> _Known:
    """A damaged file is worth as much as none."""
    try:
        with path.open("rb") as opened:
            return _Known.model_validate_json(opened.read(FILE_BYTES_MAX))
    except (OSError, ValidationError):
        return _Known()
