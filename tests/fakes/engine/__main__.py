"""python -m tests.fakes.engine --uds PATH, --port N, or both: an engine until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import uvloop

from runtimes.contract import Capability
from tests.fakes.engine.asks import Model
from tests.fakes.engine.listening import constant, listen
from tests.fakes.engine.serving import Engine, Pace


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uds", type=Path, help="path of a Unix socket")
    parser.add_argument("--port", type=int, help="port on 127.0.0.1")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--first-token-ms", type=float, default=0)
    parser.add_argument("--token-ms", type=float, default=0)
    parser.add_argument("--tokens", type=int, default=20, help="of an answer that nothing cuts short")
    parser.add_argument("--context", type=int, default=1 << 20)
    parser.add_argument("--capabilities", nargs="*", choices=list(Capability), default=list(Capability))
    parser.add_argument("--constant", action="store_true", help="the same bytes for every request, fast")
    options = parser.parse_args()
    if options.uds is None and options.port is None:
        parser.error("one of --uds and --port is needed, or both")
    uvloop.run(serve(options))


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if options.constant:
        make = constant(options.tokens, options.token_ms)
    else:
        capabilities = frozenset(map(Capability, options.capabilities))
        model = Model(options.model, capabilities, options.tokens, options.context)
        make = Engine(model, Pace(options.first_token_ms, options.token_ms)).connection
    servers = []
    if options.uds is not None:
        servers.append(await listen(make, uds=options.uds))
    if options.port is not None:
        servers.append(await listen(make, port=options.port))
    await stop.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    main()
