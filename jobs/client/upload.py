"""Sends a job's files to the addresses that the server names; whole, or an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin
from uuid import UUID

import httpx

from jobs.client.errors import TransferFailed
from jobs.client.gather import LocalFile
from jobs.client.sdk import Souk
from jobs.client.transport import backoff_seconds
from jobs.wire import UploadRequest
from provider_agent.protocol import UploadPart

ATTEMPTS_MAX = 6
CHUNK_BYTES = 1 << 20
WRITE_SECONDS = 300.0


def upload_files(souk: Souk, files: list[LocalFile], *, on_bytes: Callable[[int], None] = lambda _: None) -> UUID:
    """The id of a complete input that holds all `files`; what the server has already is not sent again."""
    sources = {file.entry.path: file.source for file in files}
    view = souk.begin_upload(UploadRequest(files=[file.entry for file in files]))
    etags: dict[str, list[str]] = {}
    for upload in view.uploads:
        if upload.path not in sources:
            raise TransferFailed(f"The server asks for {upload.path!r}, which was not offered.")
        parts = sorted(upload.parts, key=lambda part: part.number)
        etags[upload.path] = [_send_part(souk, sources[upload.path], part, on_bytes) for part in parts]
    souk.complete_upload(view.artifact_id, etags)
    return view.artifact_id


def _send_part(souk: Souk, source: Path, part: UploadPart, on_bytes: Callable[[int], None]) -> str:
    """PUT one part, again after a lost connection; the answer's ETag. The address is signed: no key goes with it."""
    url = urljoin(souk.transport.server + "/", part.url)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            response = souk.transport.http.put(
                url,
                content=_read(source, part.offset, part.size),
                headers={"Content-Length": str(part.size)},
                timeout=httpx.Timeout(WRITE_SECONDS, connect=10.0),
            )
        except httpx.TransportError as error:
            if attempt == ATTEMPTS_MAX:
                raise TransferFailed(f"{source.name} could not be sent: {error or type(error).__name__}") from error
        else:
            if response.is_success:
                on_bytes(part.size)
                return str(response.headers.get("ETag", ""))
            if response.status_code < 500 or attempt == ATTEMPTS_MAX:
                raise TransferFailed(f"{source.name} was refused by the store with status {response.status_code}.")
        time.sleep(backoff_seconds(attempt))
    raise AssertionError("unreachable: the last attempt returns or raises")


def _read(source: Path, offset: int, size: int) -> Iterator[bytes]:
    with source.open("rb") as opened:
        opened.seek(offset)
        while size > 0:
            chunk = opened.read(min(CHUNK_BYTES, size))
            if not chunk:
                raise TransferFailed(f"{source} became shorter while it was sent.")
            size -= len(chunk)
            yield chunk
