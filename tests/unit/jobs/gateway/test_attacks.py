"""Mallory's connections: slow, large, silent, greedy. Each is closed, and costs nobody else anything."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from jobs.gateway.frontend import connections
from tests.unit.jobs.gateway.playing import play
from tests.unit.jobs.gateway.stage import BOB, Stage, chat, grant_for, key_of, until

HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key_of('alice')}\r\n"
JSON = "Content-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(connections, "HEADER_SECONDS_MAX", 0.4)
    monkeypatch.setattr(connections, "BODY_SECONDS_MAX", 0.6)
    monkeypatch.setattr(connections, "SEND_SECONDS_MAX", 0.5)
    monkeypatch.setattr(connections, "SEND_BUFFER_BYTES", 16 * 1024)


@asynccontextmanager
async def dial(
    up: Stage, *, receive_buffer: int = 0
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    caller = socket.socket()
    if receive_buffer:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    caller.setblocking(False)
    await asyncio.get_running_loop().sock_connect(caller, ("127.0.0.1", up.port))
    reader, writer = await asyncio.open_connection(sock=caller, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        try:
            return await reader.read(-1)
        except ConnectionError:
            return b""


def error_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_a_head_that_drips_is_cut_off(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        async with dial(up) as (reader, writer):

            async def drip() -> None:
                for byte in (HEAD + "X: " + "y" * 10_000).encode():
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            answer = await rest(
                reader
            )  # lost where a drip met the closed connection: then the kernel resets the connection
            assert not answer or error_of(answer) == (408, "request_timeout")
            dripping.cancel()
            assert (await up.post(chat())).status == 200

    play(tmp_path, scenario)


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        async with dial(up) as (reader, _):
            assert error_of(await rest(reader)) == (408, "request_timeout")

    play(tmp_path, scenario)


def test_a_body_that_drips_is_cut_off_and_was_never_answered(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        async with dial(up) as (reader, writer):
            writer.write((HEAD + JSON + "Content-Length: 1000\r\n\r\n{").encode())
            assert error_of(await rest(reader)) == (408, "request_timeout")
        assert up.engine.requests == []
        await until(lambda: up.parts.metrics.in_flight == 0)

    play(tmp_path, scenario)


def test_a_second_request_on_a_connection_may_not_drip_either(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        async with dial(up) as (reader, writer):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b'{"ok":true}')
            writer.write(b"GET /hea")
            assert error_of(await rest(reader)) == (408, "request_timeout")

    play(tmp_path, scenario)


def test_endless_headers_are_refused(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        for endless in ("X-A: " + "b" * 70_000, "".join(f"X-{place}: y\r\n" for place in range(8000)), "X" * 70_000):
            async with dial(up) as (reader, writer):
                writer.write((HEAD + endless).encode())
                assert error_of(await rest(reader)) == (431, "headers_too_large")

    play(tmp_path, scenario)


def test_endless_trailers_and_chunk_frames_are_refused(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        begin = (HEAD + JSON + "Transfer-Encoding: chunked\r\n\r\n").encode()
        for endless in (b"0\r\n" + b"X-A: b\r\n" * 40_000, b"1;" + b"x" * 200_000, b"1\r\n{\r\n1;" + b"e=f;" * 60_000):
            async with dial(up) as (reader, writer):
                writer.write(begin + endless)
                assert b" 200 " not in (await rest(reader)).split(b"\r\n")[0]
        assert up.engine.requests == []

    play(tmp_path, scenario)


@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_an_oversized_body_is_refused_by_what_it_says_or_by_what_it_is(tmp_path: Path, framing: str) -> None:
    async def scenario(up: Stage) -> None:
        large = json.dumps(chat(user="x" * 2_000_000)).encode()

        async def pieces() -> AsyncIterator[bytes]:
            yield large

        data = large if framing == "declared" else pieces()
        answer = await up.session.post(
            up.url + "/v1/chat/completions",
            data=data,
            headers={"Authorization": f"Bearer {key_of('alice')}", "Content-Type": "application/json"},
        )
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "request_too_large"
        assert up.engine.requests == []

    play(tmp_path, scenario, body_mib_max=1)


def test_large_bodies_together_are_bounded(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.engine.gate = asyncio.Event()
        large = chat(user="x" * 700_000)
        held = asyncio.create_task(up.post(large))
        await until(lambda: up.engine.requests)
        answer = await up.post(large)
        assert (answer.status, answer.code) == (503, "server_overloaded")
        up.engine.gate.set()
        assert (await held).status == 200
        assert (await up.post(large)).status == 200

    play(tmp_path, scenario, body_mib_max=1, bodies_mib_max=1)


def test_bodies_of_one_payer_that_come_slowly_leave_room_for_another(tmp_path: Path) -> None:
    large = 900_000

    async def scenario(up: Stage) -> None:
        up.marketplace.let(grant_for("bob", BOB))
        async with AsyncExitStack() as stack:
            head = f"{HEAD}{JSON}Content-Length: {large}\r\n\r\n".encode()
            slow = [await stack.enter_async_context(dial(up)) for _ in range(6)]
            for _, writer in slow:
                writer.write(head + b"x" * (large - 1))
            await asyncio.sleep(0.2)
            assert (await up.post(chat("bob/open", user="x" * (large - 1000)), key="bob")).status == 200

    play(tmp_path, scenario, body_mib_max=1, bodies_mib_max=4)


def test_a_caller_who_never_reads_is_let_go_and_little_waits_for_them(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.engine.endless = True
        async with dial(up, receive_buffer=4096) as (_, writer):
            body = json.dumps(chat(stream=True)).encode()
            writer.write((HEAD + JSON + f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
            await until(lambda: up.engine.requests)
            await until(lambda: up.engine.gone == 1)
        await until(lambda: up.parts.metrics.in_flight == 0)
        await until(lambda: up.marketplace.usage)
        assert up.marketplace.usage[0].status == "cancelled"

    play(tmp_path, scenario)


def test_a_caller_who_hangs_up_ends_the_work(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.engine.endless = True
        async with dial(up) as (reader, writer):
            body = json.dumps(chat(stream=True)).encode()
            writer.write((HEAD + JSON + f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
            await reader.readexactly(500)
            writer.transport.abort()
        await until(lambda: up.engine.gone == 1)

    play(tmp_path, scenario)


def test_idle_connections_go_sooner_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS_CROWDED", 0.1)

    async def scenario(up: Stage) -> None:
        callers = []
        for _ in range(9):
            reader, writer = await asyncio.open_connection("127.0.0.1", up.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b'{"ok":true}')
            callers.append((reader, writer))
        async with asyncio.timeout(10):
            for reader, writer in callers:
                assert await reader.read() == b""
                writer.close()

    play(tmp_path, scenario, connections_max=10)


def test_connections_beyond_the_bound_are_for_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TUNNELS_RESERVED", 2)
    monkeypatch.setattr(connections, "HEADER_SECONDS_MAX", 20)

    async def scenario(up: Stage) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", up.port) for _ in range(3)]
        await until(lambda: len(up.server.server_state.connections) == 3)
        answer = await up.post(chat())
        assert (answer.status, answer.code) == (503, "server_overloaded")
        more = [await asyncio.open_connection("127.0.0.1", up.port) for _ in range(2)]
        await until(lambda: len(up.server.server_state.connections) == 5)
        async with dial(up) as (reader, _):
            assert error_of(await rest(reader)) == (503, "server_overloaded")
        for _, writer in silent + more:
            writer.close()

    play(tmp_path, scenario, connections_max=3)


def test_a_flood_of_requests_in_one_breath_is_cut_off(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.engine.gate = asyncio.Event()
        body = json.dumps(chat()).encode()
        one = (HEAD + JSON + f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        async with dial(up) as (reader, writer):
            writer.write(one * 500)
            assert await rest(reader) == b""
        assert len(up.engine.requests) <= 1
        up.engine.gate.set()

    play(tmp_path, scenario)


@pytest.mark.parametrize("raw", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_what_is_no_http_gets_the_known_form(tmp_path: Path, raw: bytes) -> None:
    async def scenario(up: Stage) -> None:
        async with dial(up) as (reader, writer):
            writer.write(raw)
            assert error_of(await rest(reader)) == (400, "invalid_http")

    play(tmp_path, scenario)


def test_two_lengths_for_one_body_are_refused(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        async with dial(up) as (reader, writer):
            writer.write((HEAD + JSON + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").encode())
            assert error_of(await rest(reader)) == (400, "invalid_http")

    play(tmp_path, scenario)
