"""A socket for http.client that keeps one try of a request within its time and bytes, and leaves it at SIGTERM."""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from runtimes.train.errors import Stopped

REQUEST_SECONDS_MAX = 600.0  # of one try, from the first byte sent to the last one received
LOOK_SECONDS = 0.5  # how late SIGTERM and the end of a request's time are seen
LEAVE_SECONDS = 3.5  # that a running request may take after SIGTERM: its answer is paid for already


class Limits:
    """Until when one try may go on, and how many bytes may come."""

    def __init__(self, stop: threading.Event, *, until: float, bytes_max: int) -> None:
        """`until`: when the request's time is over, all tries together, by the monotonic clock."""
        self._stop = stop
        self._began = time.monotonic()
        self._until = min(self._began + REQUEST_SECONDS_MAX, until)
        self._bytes_max, self._received = bytes_max, 0
        self._is_leaving = False

    def check(self) -> None:
        """Raise TimeoutError when its time is over, and Stopped a while after SIGTERM."""
        if self._stop.is_set() and not self._is_leaving:
            self._is_leaving = True
            self._until = min(self._until, time.monotonic() + LEAVE_SECONDS)
        if time.monotonic() < self._until:
            return
        if self._is_leaving:
            raise Stopped("SIGTERM: this request is not answered")
        raise TimeoutError(f"no whole answer in {time.monotonic() - self._began:.0f} s")

    def count(self, received: int) -> int:
        """The number of bytes that came; raises HTTPException when they are more than any answer has.

        http.client bounds lines and headers, but neither what chunks add nor a chunk whose size is -1.
        """
        self._received += received
        if self._received > self._bytes_max:
            raise http.client.HTTPException(f"more than {self._bytes_max} bytes came")
        return received


class WatchedSocket:
    """What http.client needs of a socket; it looks at the request's limits while it sends and receives."""

    def __init__(self, plain: socket.socket) -> None:
        plain.settimeout(LOOK_SECONDS)
        self._socket = plain
        self._limits: Limits | None = None

    def begin(self, limits: Limits) -> None:
        """From now on these count."""
        self._limits = limits

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            self._check()
            with suppress(TimeoutError):
                left = left[self._socket.send(left) :]

    def receive_into(self, buffer: Any) -> int:
        """Bytes received into the buffer; 0 at the end."""
        while True:
            self._check()
            with suppress(TimeoutError):
                return self._count(self._socket.recv_into(buffer))

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What http.client reads an answer from."""
        return io.BufferedReader(_Receiver(self))

    def close(self) -> None:
        """Nothing: http.client closes what it will not use again before it has read the answer."""

    def end(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _check(self) -> None:
        if self._limits is not None:
            self._limits.check()

    def _count(self, received: int) -> int:
        return received if self._limits is None else self._limits.count(received)


class _Receiver(io.RawIOBase):
    def __init__(self, watched: WatchedSocket) -> None:
        self._watched = watched

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._watched.receive_into(buffer)
