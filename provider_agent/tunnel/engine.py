"""The one socket of a lease, by a way that the container cannot bend; a connection to it is used again while idle.

The socket lies in a folder that belongs to the container. So it is opened without following a link, looked at through
what was opened, and connected to through that same file: what it is replaced by afterwards is never reached.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections import deque
from pathlib import Path
from typing import Final, Protocol, cast

IDLE_MAX: Final = 128  # connections that wait for another request
IDLE_SECONDS_MAX: Final = 3.0  # below the 5 s after which uvicorn closes one, so that none is used while it is closed
CONNECT_TRIES_MAX: Final = 100
CONNECT_PAUSE_SECONDS: Final = 0.02
WRITE_BYTES_HIGH: Final = 64 * 1024


class EngineAway(Exception):
    """There is no socket that may be connected to, or no engine accepts on it. Nothing was sent."""


class ConnectionUser(Protocol):
    """Receives what happens on a connection; exchange.py has the one there is. None of these may wait."""

    def on_engine_data(self, data: bytes) -> None:
        """A piece of the engine's answer."""

    def on_engine_closed(self) -> None:
        """The engine closed the connection."""

    def on_engine_writable(self) -> None:
        """The engine reads again."""


class Connection(asyncio.Protocol):
    """One connection to an engine: at most one exchange at a time uses it."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.exchange: ConnectionUser | None = None
        self.is_paused = False  # the engine does not read
        self.is_gone = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """By asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. Data outside a request ends the connection."""
        if self.exchange is None:
            self.close()
        else:
            self.exchange.on_engine_data(data)

    def eof_received(self) -> bool:
        """By asyncio; what follows is connection_lost."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """By asyncio."""
        self.is_gone = True
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.on_engine_closed()

    def pause_writing(self) -> None:
        """By asyncio."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """By asyncio."""
        self.is_paused = False
        if self.exchange is not None:
            self.exchange.on_engine_writable()

    def close(self) -> None:
        """Close at once, with whatever it held: so the engine sees that no caller waits, and stops."""
        self.is_gone = True
        self.exchange = None
        self.transport.abort()


class Engine:
    """Connections to the engine of one lease."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: deque[Connection] = deque()

    def take_idle(self) -> Connection | None:
        """One that is open and waits, the newest first."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_gone and now - connection.idle_since < IDLE_SECONDS_MAX:
                return connection
            if not connection.is_gone:
                connection.close()
        return None

    async def connect(self) -> Connection:
        """A new one. Raises EngineAway."""
        loop = asyncio.get_running_loop()
        for _ in range(CONNECT_TRIES_MAX):
            connected = connect_to(self._path)
            if connected is not None:
                _, connection = await loop.create_unix_connection(Connection, sock=connected)
                return connection
            await asyncio.sleep(CONNECT_PAUSE_SECONDS)
        raise EngineAway("the engine accepts no connection")

    def give_back(self, connection: Connection) -> None:
        """It may carry another request."""
        connection.exchange = None
        if connection.is_gone:
            return
        if len(self._idle) >= IDLE_MAX:
            connection.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def sweep(self) -> None:
        """Close what waited too long."""
        now = asyncio.get_running_loop().time()
        while self._idle and (self._idle[0].is_gone or now - self._idle[0].idle_since >= IDLE_SECONDS_MAX):
            connection = self._idle.popleft()
            if not connection.is_gone:
                connection.close()

    def close(self) -> None:
        """Close what waits."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_gone:
                connection.close()


def connect_to(path: Path) -> socket.socket | None:
    """Connected to the socket at `path`, which is no link and its folder's own; None: its queue is full just now.

    Raises EngineAway.
    """
    try:
        found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise EngineAway(f"the engine's socket cannot be opened: {error.strerror}") from error
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        status = os.fstat(found)
        if not stat.S_ISSOCK(status.st_mode):
            raise EngineAway("what lies where the engine's socket should be is no socket")
        if status.st_uid not in {os.stat(path.parent).st_uid, os.geteuid()}:  # noqa: PTH116 - beside fstat
            raise EngineAway("what lies where the engine's socket should be belongs to another user")
        connecting.connect(f"/proc/self/fd/{found}")
    except BlockingIOError:
        connecting.close()
        return None
    except OSError as error:
        connecting.close()
        raise EngineAway(f"the engine does not answer: {error.strerror}") from error
    except EngineAway:
        connecting.close()
        raise
    finally:
        os.close(found)
    return connecting
