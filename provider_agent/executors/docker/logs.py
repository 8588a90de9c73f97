"""Copies what containers print into the leases' logs, up to the cap."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
from docker.errors import DockerException, NotFound
from docker.models.containers import Container

from provider_agent.executors import base

LOG_DRAIN_SECONDS_MAX = 10.0
ENGINE_SILENT_SECONDS_MAX = 60.0  # as the attempt waits for the engine
RETRY_SECONDS = 0.5


class LogPump:
    """Copies a container's output into a file until it ends; after a restart it skips what the file has."""

    def __init__(self, container: Container, folder: Path, *, bytes_max: int) -> None:
        self._container = container
        self._folder = folder
        self._bytes_max = bytes_max
        self._stream: Any = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._copy, name="souk-log-pump", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until everything is copied."""
        self._thread.join(seconds)

    def close(self) -> None:
        """Stop copying, wherever it is."""
        self._is_closed = True
        if self._stream is not None and self._thread.is_alive():
            self._stream.close()
        self._thread.join(LOG_DRAIN_SECONDS_MAX)

    def _copy(self) -> None:
        """The engine keeps the whole output, so the file's length is what to skip."""
        with base.log_path(self._folder).open("ab", buffering=0) as log:
            copied = max(
                log.tell() - base.preamble_bytes(self._folder), 0
            )  # what we wrote ourselves is not the engine's
            left = self._bytes_max - len(base.LOG_CAP_LINE.encode()) - log.tell()
            silent_until = time.monotonic() + ENGINE_SILENT_SECONDS_MAX
            has_ended = False
            while left >= 0 and not self._is_closed:
                try:
                    for data in self._stream_from(copied, follow=not has_ended):
                        if self._is_closed:
                            return
                        copied += log.write(data[:left])
                        left -= len(data)
                        silent_until = time.monotonic() + ENGINE_SILENT_SECONDS_MAX
                        if left < 0:
                            log.write(base.LOG_CAP_LINE.encode())
                            return
                    if has_ended:
                        return
                    has_ended = self._has_ended()
                    if has_ended:  # the stream that followed may have ended before the output did: read the rest
                        continue
                except (DockerException, requests.RequestException, OSError) as error:
                    if has_ended:  # the engine goes away, too: whoever polls must see that at once
                        return
                    # An engine that is away for a moment, as in an upgrade, may have kept the program.
                    is_over = isinstance(error, NotFound) or time.monotonic() > silent_until
                    if is_over and not self._is_closed:
                        log.write(b"\n[souk] the engine stopped sending this log\n")
                    if is_over:
                        return
                time.sleep(RETRY_SECONDS)

    def _stream_from(self, copied: int, *, follow: bool) -> Iterator[bytes]:
        """The output after its first `copied` bytes: what there is, or with `follow` until it or the engine ends."""
        skip = copied
        self._stream = self._container.logs(stream=True, follow=follow)
        for chunk in self._stream:
            if data := chunk[skip:]:
                yield data
            skip = max(skip - len(chunk), 0)

    def _has_ended(self) -> bool:
        """Whether there will be no more output: a stream also ends where an engine stops."""
        self._container.reload()
        return self._container.attrs["State"]["Status"] not in {"created", "running", "paused", "restarting"}
