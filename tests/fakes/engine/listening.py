"""An engine that listens: in this process, or as what `python -m tests.fakes.engine` is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.engine.asks import Model
from tests.fakes.engine.constant import Constant, Prepared, Ticker
from tests.fakes.engine.serving import Engine, Pace

BACKLOG = 4096


@asynccontextmanager
async def serving(
    *, uds: Path | None = None, port: int = 0, model: Model | None = None, pace: Pace | None = None
) -> AsyncIterator[Engine]:
    """An engine of this event loop; `engine.port` where it has one. On leaving its connections are reset."""
    engine = Engine(model or Model(), pace or Pace())
    server = await listen(engine.connection, uds=uds, port=port)
    engine.port = 0 if uds is not None else int(server.sockets[0].getsockname()[1])
    try:
        yield engine
    finally:
        server.close()
        for connection in list(engine.alive):
            connection.transport.abort()
        await asyncio.sleep(0)  # the answers that were cancelled end


async def listen(make: Callable[[], asyncio.Protocol], *, uds: Path | None = None, port: int = 0) -> asyncio.Server:
    """A server of this protocol."""
    loop = asyncio.get_running_loop()
    if uds is not None:
        uds.unlink(missing_ok=True)
        return await loop.create_unix_server(make, path=str(uds), backlog=BACKLOG)
    return await loop.create_server(make, "127.0.0.1", port, backlog=BACKLOG)


def constant(tokens: int, token_ms: float) -> Callable[[], asyncio.Protocol]:
    """The protocol of the constant engine."""
    prepared, ticker = Prepared(tokens), Ticker(token_ms)
    return lambda: Constant(prepared, ticker)
