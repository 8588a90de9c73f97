"""The engine as a process: `python -m runtimes.serve.engines.souk --model DIR --uds PATH`.

It ends on SIGTERM, after what is being answered or DRAIN_SECONDS, and when the process that started it has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import uvicorn

from runtimes.contract import ExitCode

SLOTS: Final = 16
SLOTS_MAX: Final = 256
DRAIN_SECONDS: Final = 60
WATCH_SECONDS: Final = 1.0
BACKLOG: Final = 512


def main(argv: Sequence[str] | None = None) -> int:
    """Load, serve, end."""
    arguments = _parse(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    parent = os.getppid()
    listener = _listen(arguments)  # first: a path that cannot be bound is known before a model is loaded
    return asyncio.run(_serve(arguments, listener, parent))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runtimes.serve.engines.souk", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a folder with configuration, safetensors, tokenizer")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--uds", help="the Unix socket to answer on")
    place.add_argument("--port", type=int, help="the loopback port to answer on; 0: a free one, which is printed")
    parser.add_argument("--served-as", default="", help="the model's name; the folder's where it is left out")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    parser.add_argument("--context", type=int, help="tokens that a request reads and writes at most")
    parser.add_argument("--max-tokens", type=int, help="tokens that an answer has at most")
    parser.add_argument("--slots", type=int, default=SLOTS, choices=range(1, SLOTS_MAX + 1), metavar="N")
    parser.add_argument("--digest", default="", help="of the model's files; computed where it is left out")
    parser.add_argument("--chat-template", type=Path, help="a file, for models without one")
    return parser.parse_args(argv)


def _listen(arguments: argparse.Namespace) -> socket.socket:
    if arguments.uds:
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listener.bind(arguments.uds)
        finally:
            os.umask(before)
    else:
        listener = socket.create_server(("127.0.0.1", arguments.port))
        print(listener.getsockname()[1], flush=True)  # noqa: T201 - the process that started it reads the port there
    listener.listen(BACKLOG)
    return listener


async def _serve(arguments: argparse.Namespace, listener: socket.socket, parent: int) -> int:
    from runtimes.serve.engines.souk.batch import Batch
    from runtimes.serve.engines.souk.http import EngineApp
    from runtimes.serve.engines.souk.model import load_model
    from runtimes.serve.engines.souk.text import load_texts

    model = load_model(
        arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        slots=arguments.slots,
        context=arguments.context,
        digest=arguments.digest,
    )
    texts = load_texts(arguments.model, arguments.chat_template, model.end_ids)
    batch = Batch(model, texts)
    name = arguments.served_as or arguments.model.name
    app = EngineApp(model, texts, batch, served_as=name, max_tokens=arguments.max_tokens)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = uvicorn.Server(config)
    watch = asyncio.create_task(_stop_when(server, lambda: os.getppid() != parent or not batch.is_alive))
    try:
        await server.serve(sockets=[listener])
    finally:
        watch.cancel()
        has_failed = not batch.is_alive
        batch.close()
    return ExitCode.INTERNAL if has_failed else ExitCode.OK


async def _stop_when(server: uvicorn.Server, is_over: Callable[[], bool]) -> None:
    """An engine without its parent process, or one that no longer computes, must not answer any more."""
    while not is_over():  # noqa: ASYNC110 - neither a parent's end nor a thread's is an event
        await asyncio.sleep(WATCH_SECONDS)
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(main())
