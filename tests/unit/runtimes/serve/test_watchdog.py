"""An idle engine is probed; one that answers is left alone; one that fails twice is given up."""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path

import pytest

from runtimes.serve.config import ServeConfig, Source
from runtimes.serve.engines.transformers import TransformersEngine
from runtimes.serve.errors import ServeError
from runtimes.serve.listener import Listener
from runtimes.serve.watchdog import Watch, watch

CONFIG = ServeConfig(model=Source("job", "x"), served_as="tiny")
GOOD = json.dumps({"usage": {"completion_tokens": 1}}).encode()
EMPTY = json.dumps({"usage": {"completion_tokens": 0}}).encode()


class RequestOptions:
    """An engine that gives prepared answers, one a request, the last one for ever."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.count = 0

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        await reader.readuntil(b"\r\n\r\n")
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(b"HTTP/1.1 %d X\r\n\r\n" % status + body)
        writer.close()


async def watch_for(
    asked: RequestOptions, seconds: float, *, is_moving: bool = False, probes: float = math.inf
) -> None:
    """Until the engine is given up, or for so long; with `probes`, only until it was asked so often."""
    server = await asyncio.start_unix_server(asked.attend, "engine.sock")
    listener = Listener("engine.sock")
    await listener.listen("serve.sock")
    watching = asyncio.create_task(watch(TransformersEngine(), CONFIG, listener, "serve.sock", Watch(0.05, 5)))
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until and not watching.done() and asked.count < probes:
            if is_moving:
                listener.moved_at = time.monotonic() + 60  # ahead: this process may stand still for a moment
            await asyncio.sleep(0.005)
        if watching.done():
            await watching
    finally:
        watching.cancel()
        await listener.close()
        server.close()


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("answer", [(500, b"{}"), (200, EMPTY), (200, b"no json"), (503, GOOD)])
def test_engine_that_fails_twice_is_given_up(answer: tuple[int, bytes]) -> None:
    asked = RequestOptions(answer)
    with pytest.raises(ServeError, match="no token 2 times"):
        asyncio.run(watch_for(asked, 20))
    assert asked.count == 2


def test_one_failure_is_forgiven() -> None:
    asked = RequestOptions((200, GOOD), (500, b"{}"), (200, GOOD))
    asyncio.run(watch_for(asked, 20, probes=4))
    assert asked.count >= 4


def test_engine_that_answers_somebody_is_not_disturbed() -> None:
    asked = RequestOptions((500, b"{}"))
    asyncio.run(watch_for(asked, 0.3, is_moving=True))
    assert asked.count == 0
