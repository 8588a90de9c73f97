"""Sends a job's files to the addresses that the server names: whole, or an error that names the file.

    1. announce   the list of files, under the key of the upload that an earlier command began, if there was one
    2. send       what the server lacks, but for the parts whose ETags are remembered
    3. complete   the server looks at every byte; what it does not find whole is sent once more

Ctrl-C or a kill loses the part that was just sent: the next upload of the same files goes on there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol
from urllib.parse import urljoin
from uuid import UUID

import httpx

from jobs.client.begun_uploads import BegunUpload, begun_upload
from jobs.client.errors import SoukApiError, TransferFailed
from jobs.client.sdk import Souk
from jobs.client.transport import STATUSES_RETRIED, backoff_seconds
from jobs.wire import UploadRequest, UploadView
from provider_agent.protocol import ArtifactFile, UploadPart

ATTEMPTS_MAX = 6
ROUNDS_MAX = 4  # how often the files are announced: once, and again for new addresses or for what arrived damaged
PATHS_NAMED_MAX = 5
WRITE_SECONDS = 300.0
ANNOUNCED_NO_MORE = frozenset({"artifact_closed", "idempotency_mismatch", "idempotency_key_not_yours"})
INCOMPLETE = "upload_incomplete"
BUSY = "upload_busy"
BUSY_SECONDS_MAX = 3600.0
ADDRESS_OVER = frozenset({401, 403, 410})  # what stores answer to an address that has expired

OnBytes = Callable[[int], None]


class FileToSend(Protocol):
    """A file with its entry in the artifact: `jobs.client.gather.LocalFile`, or an object of S3."""

    @property
    def entry(self) -> ArtifactFile:
        """Its path in the artifact, size and SHA-256."""

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """These bytes of it, in chunks; raises TransferFailed."""


def upload_files(
    souk: Souk, files: Sequence[FileToSend], *, on_bytes: OnBytes = lambda _: None, parts_at_once: int = 1
) -> UUID:
    """The id of a complete input that holds all `files`; what the server has already is not sent again.

    Until `forget_upload`, the same files are the same input. `on_bytes` gets each number of bytes that went out, and
    a negative one for bytes that have to go again; from several threads where several parts go at once.
    """
    begun = begun_upload(souk.transport.server, [file.entry for file in files])
    return _Sending(souk, files, begun, on_bytes, parts_at_once).run()


def forget_upload(souk: Souk, files: Sequence[FileToSend]) -> None:
    """A job or a volume has these files: the next upload of the same ones is an input of its own."""
    begun_upload(souk.transport.server, [file.entry for file in files]).forget()


class _Expired(Exception):
    """An address is good no more; announcing the files again gives a new one."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(path)
        self.path, self.status = path, status


class _Stopped(Exception):
    """Another part failed, so this one is given up."""


class _Sending:
    """One upload, with what an earlier one of the same files left."""

    def __init__(
        self, souk: Souk, files: Sequence[FileToSend], begun: BegunUpload, on_bytes: OnBytes, parts_at_once: int
    ) -> None:
        self._souk, self._begun, self._on_bytes, self._parts_at_once = souk, begun, on_bytes, parts_at_once
        self._files = {file.entry.path: file for file in files}
        self._shown = 0
        self._lock = threading.Lock()  # of what is shown and remembered
        self._is_stopping = threading.Event()

    def run(self) -> UUID:
        """Announce, send and complete until all is there; raises TransferFailed."""
        problem = ""
        for _ in range(ROUNDS_MAX):
            view = self._announce()
            try:
                etags = self._send(view)
                self._complete(view.artifact_id, etags)
                return view.artifact_id
            except _Expired as error:
                problem = f"{error.path} was refused by the store with status {error.status}"
            except SoukApiError as error:
                if error.code != INCOMPLETE:
                    raise
                missing = [str(path) for path in error.details.get("paths", [])]
                self._begun.drop(missing or list(self._files))
                named = ", ".join(missing[:PATHS_NAMED_MAX]) or "what was sent"
                problem = f"{named} did not arrive as announced; if it changed meanwhile, run the command again"
        raise TransferFailed(f"{problem} ({ROUNDS_MAX} tries).")

    def _complete(self, artifact_id: UUID, etags: dict[str, list[str]]) -> None:
        """Ask again for as long as the server still works on what was asked before, whose answer never came."""
        until = time.monotonic() + BUSY_SECONDS_MAX
        while True:
            try:
                self._souk.complete_upload(artifact_id, etags)
                return
            except SoukApiError as error:
                if error.code != BUSY or time.monotonic() > until:
                    raise

    def _announce(self) -> UploadView:
        """Where the missing bytes go; an upload that the server gave up begins anew."""
        request = UploadRequest(files=[file.entry for file in self._files.values()])
        try:
            view = self._souk.begin_upload(request, idempotency_key=self._begun.key)
        except SoukApiError as error:
            if error.code not in ANNOUNCED_NO_MORE:
                raise
            self._begun.begin_anew()
            view = self._souk.begin_upload(request, idempotency_key=self._begun.key)
        unknown = [upload.path for upload in view.uploads if upload.path not in self._files]
        if unknown:
            raise TransferFailed(f"The server asks for {unknown[0]!r}, which was not offered.")
        self._begun.is_of(view.artifact_id)
        return view

    def _send(self, view: UploadView) -> dict[str, list[str]]:
        """PUT every part that is not remembered; the ETags of all, in order."""
        wanted = {upload.path: sorted(upload.parts, key=lambda part: part.number) for upload in view.uploads}
        left = [(path, part) for path, parts in wanted.items() for part in parts if not self._begun.has(path, part)]
        there = sum(file.entry.size for file in self._files.values()) - sum(part.size for _, part in left)
        self._show(there - self._shown)
        etags: dict[tuple[str, int], str] = {}
        for path, part, etag in self._put_all(left):
            etags[path, part.number] = etag
            if len(wanted[path]) > 1:  # the server itself knows which files of one part it has
                self._begun.remember(path, part, etag)
        return {
            path: [etags.get((path, part.number)) or self._begun.etag(path, part) for part in parts]
            for path, parts in wanted.items()
        }

    def _put_all(self, parts: Sequence[tuple[str, UploadPart]]) -> Iterator[tuple[str, UploadPart, str]]:
        """PUT these parts, `parts_at_once` at a time; each with its ETag, as it arrives."""
        if self._parts_at_once == 1:
            yield from ((path, part, self._put(path, part)) for path, part in parts)
            return
        pool = ThreadPoolExecutor(self._parts_at_once)
        try:
            futures = {pool.submit(self._put, path, part): (path, part) for path, part in parts}
            for future in as_completed(futures):
                path, part = futures[future]
                yield path, part, future.result()
        except BaseException:
            self._is_stopping.set()  # those that are under way end with their next chunk
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            self._is_stopping.clear()

    def _put(self, path: str, part: UploadPart) -> str:
        """PUT one part, again after a lost connection; its ETag. The address is signed: no key goes with it."""
        url = urljoin(self._souk.transport.server + "/", part.url)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            sent = [0]
            try:
                response = self._souk.transport.http.put(
                    url,
                    content=self._read(path, part, sent),
                    headers={"Content-Length": str(part.size)},
                    timeout=httpx.Timeout(WRITE_SECONDS, connect=10.0),
                )
            except httpx.TransportError as error:
                if attempt == ATTEMPTS_MAX:
                    raise TransferFailed(f"{path} could not be sent: {error or type(error).__name__}") from error
            else:
                if response.is_success:
                    return _etag(response, path)
                if response.status_code in ADDRESS_OVER:
                    raise _Expired(path, response.status_code)
                if response.status_code not in STATUSES_RETRIED or attempt == ATTEMPTS_MAX:
                    raise TransferFailed(f"{path} was refused by the store with status {response.status_code}.")
            self._show(-sent[0])
            time.sleep(backoff_seconds(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _read(self, path: str, part: UploadPart, sent: list[int]) -> Iterator[bytes]:
        for chunk in self._files[path].read(part.offset, part.size):
            if self._is_stopping.is_set():
                raise _Stopped
            yield chunk
            sent[0] += len(chunk)
            self._show(len(chunk))

    def _show(self, count: int) -> None:
        with self._lock:
            self._shown += count
            self._on_bytes(count)


def _etag(response: httpx.Response, path: str) -> str:
    """What the store calls the part; without it, the parts of a file cannot be put together."""
    if etag := str(response.headers.get("ETag", "")).strip('"'):
        return etag
    raise TransferFailed(
        f"The store at {response.url.host} took {path} and answered without an ETag, so the upload cannot be completed."
        " A proxy in between may drop that header: tell the marketplace's operator."
    )
