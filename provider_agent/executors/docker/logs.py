"""Copies what containers print into the leases' logs, up to the cap."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import requests
from docker.errors import DockerException
from docker.models.containers import Container

from provider_agent.executors import base

LOG_DRAIN_SECONDS_MAX = 10.0


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
        """The engine keeps the whole output, so the file's length says how much to skip."""
        cap_line = base.LOG_CAP_LINE.encode()
        left = self._bytes_max - len(cap_line)
        with base.log_path(self._folder).open("ab", buffering=0) as log:
            if log.tell() > left:
                return
            left -= log.tell()
            skip = max(log.tell() - base.preamble_bytes(self._folder), 0)  # what we wrote ourselves is not the engine's
            try:
                self._stream = self._container.logs(stream=True, follow=True)
                for chunk in self._stream:
                    if self._is_closed:
                        return
                    data, skip = chunk[skip:], max(skip - len(chunk), 0)
                    log.write(data[:left])
                    left -= len(data)
                    if left < 0:
                        log.write(cap_line)
                        return
            except (DockerException, requests.RequestException, OSError):
                if self._is_closed:
                    return
                log.write(b"\n[souk] the engine stopped sending this log\n")
