"""A TCP relay on loopback whose connections a test can cut, while both ends live on."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

PIECE = 64 * 1024
START_SECONDS_MAX = 10.0


class Relay:
    """From a port of its own to another; in a thread of its own. `cut` resets all connections; new ones are welcome."""

    def __init__(self, to_port: int) -> None:
        self._to_port, self._writers = to_port, set[asyncio.StreamWriter]()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = starting.result(START_SECONDS_MAX)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        ends = {writer, back}
        self._writers |= ends
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._writers -= ends

    async def _copy(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(PIECE):
                to.write(data)
                await to.drain()
        to.close()

    def cut(self) -> int:
        """Reset what is open; how many connections those were."""

        async def abort() -> int:
            writers = list(self._writers)
            for writer in writers:
                writer.transport.abort()
            return len(writers) // 2

        return asyncio.run_coroutine_threadsafe(abort(), self._loop).result(START_SECONDS_MAX)

    def close(self) -> None:
        """Stop listening, and cut what is open."""
        self._loop.call_soon_threadsafe(self._server.close)
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
