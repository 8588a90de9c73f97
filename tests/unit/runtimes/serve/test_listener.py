"""The listener passes what may pass, byte for byte, and counts it; everything else it refuses in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from runtimes.serve.listener import HEAD_BYTES_MAX, OWN_HEADER, Listener

GET_MODELS = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
Engine = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Scene:
    """A listener before an engine that is a few lines of a test."""

    def __init__(self, engine: Engine, *, opened: bool = True) -> None:
        self._engine, self._opened = engine, opened

    async def __aenter__(self) -> Listener:
        self._server = await asyncio.start_unix_server(self._engine, "engine.sock")
        self.listener = Listener("engine.sock")
        await self.listener.listen("serve.sock")
        if self._opened:
            self.listener.open()
        return self.listener

    async def __aexit__(self, *_error: object) -> None:
        await self.listener.close()
        self._server.close()


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def ask(raw: bytes) -> bytes:
    """All that comes back."""
    reader, writer = await asyncio.open_unix_connection("serve.sock")
    writer.write(raw)
    try:
        async with asyncio.timeout(20):
            return await reader.read(-1)
    finally:
        writer.close()


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(OK + head)
    writer.close()


def code_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_head_goes_on_with_close_and_without_what_is_for_one_hop() -> None:
    async def scene() -> bytes:
        async with Scene(answer_ok):
            return await ask(
                b"GET /v1/models?x=1 HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nTE: y\r\nA: b\r\n\r\n"
            )

    got = asyncio.run(scene())
    assert got == OK + b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA: b\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"POST /reset HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"DELETE /v1/models HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"GET /v1/models/../../reset HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"POST //v1/chat/completions HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"nonsense\r\n\r\n", 400, "invalid_request"),
        (b"GET /v1/models HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES_MAX * 2 + b"\r\n\r\n", 431, "headers_too_large"),
    ],
)
def test_what_may_not_pass_is_refused(raw: bytes, status: int, code: str) -> None:
    async def scene() -> bytes:
        async with Scene(answer_ok):
            return await ask(raw)

    assert code_of(asyncio.run(scene())) == (status, code)


def test_closed_listener_lets_only_the_runtime_through() -> None:
    async def scene() -> tuple[bytes, bytes, bytes, Listener]:
        async with Scene(answer_ok, opened=False) as listener:
            own = CHAT.replace(b"Host: x\r\n", listener.own_header.encode())
            forged = CHAT.replace(b"Host: x\r\n", f"{OWN_HEADER}: 00\r\n".encode())
            return await ask(CHAT), await ask(forged), await ask(own), listener

    refused, forged, passed, listener = asyncio.run(scene())
    assert code_of(refused) == code_of(forged) == (503, "replica_closed")
    assert passed.startswith(OK)
    assert OWN_HEADER.encode() not in passed
    assert listener.requests == 0


def test_drain_waits_for_what_is_in_flight_and_no_longer_than_it_may() -> None:
    async def scene() -> None:
        let_go = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await let_go.wait()
            writer.write(OK)
            writer.close()

        async with Scene(slow) as listener:
            asked = asyncio.create_task(ask(CHAT))
            while not listener.in_flight:
                await asyncio.sleep(0.01)
            assert not await listener.drain(0.05)
            assert code_of(await ask(CHAT)) == (503, "replica_draining")
            let_go.set()
            assert await listener.drain(10)
            assert await asked == OK

    asyncio.run(scene())


def test_caller_who_hangs_up_cancels_at_the_engine() -> None:
    async def scene() -> None:
        gone = asyncio.Event()

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK)
            while await reader.read(1000):
                pass
            gone.set()

        async with Scene(endless) as listener:
            reader, writer = await asyncio.open_unix_connection("serve.sock")
            writer.write(CHAT)
            await reader.readexactly(len(OK))
            writer.close()
            async with asyncio.timeout(20):
                await gone.wait()
                while listener.in_flight:
                    await asyncio.sleep(0.01)

    asyncio.run(scene())


def test_caller_who_does_not_read_stops_the_engine_and_fills_no_memory() -> None:
    async def scene() -> int:
        sent = 0

        async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            writer.write(OK)
            for _ in range(1000):
                writer.write(bytes(100_000))
                async with asyncio.timeout(1):
                    await writer.drain()
                sent += 100_000

        async with Scene(flood):
            _, writer = await asyncio.open_unix_connection("serve.sock", limit=1000)
            writer.write(CHAT)
            await asyncio.sleep(1.5)
            writer.close()
        return sent

    assert asyncio.run(scene()) < 5_000_000  # of 100: sockets' and streams' buffers


def test_large_body_to_a_closed_listener_still_gets_the_reason() -> None:
    async def scene() -> bytes:
        async with Scene(answer_ok, opened=False):
            head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n"
            return await ask(head + bytes(8_000_000))

    assert code_of(asyncio.run(scene())) == (503, "replica_closed")


@pytest.mark.parametrize("has_socket", [True, False])
def test_engine_that_is_gone_is_an_error_and_counted(has_socket: bool) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def scene() -> tuple[bytes, Listener]:
        async with Scene(hang_up) as listener:
            if not has_socket:
                os.unlink("engine.sock")  # noqa: PTH108
            return await ask(CHAT), listener

    answer, listener = asyncio.run(scene())
    assert code_of(answer) == (502, "engine_gone")
    assert (listener.errors, listener.in_flight, listener.requests) == (1, 0, 1)


def test_socket_is_made_for_its_user_alone() -> None:
    async def scene() -> int:
        async with Scene(answer_ok):
            return Path("serve.sock").stat().st_mode & 0o777

    assert asyncio.run(scene()) == 0o600
