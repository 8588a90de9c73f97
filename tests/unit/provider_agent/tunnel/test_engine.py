"""The agent reaches the socket of its lease and nothing else, whatever Mallory puts in its place."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.gateway.engines.upstream import UpstreamError
from provider_agent.tunnel import exchange
from provider_agent.tunnel.engine import EngineAway, connect_to
from provider_agent.tunnel.exchange import is_passable
from tests.fakes.tunnelled import World, run, until, world

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def listen(path: Path) -> socket.socket:
    """A socket somebody listens on."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


def test_a_socket_of_the_folder_is_connected_to(tmp_path: Path) -> None:
    with listen(tmp_path / "serve.sock") as listening:
        connected = connect_to(tmp_path / "serve.sock")
        assert connected is not None
        with connected, listening.accept()[0] as accepted:
            accepted.send(b"x")
            connected.setblocking(True)
            assert connected.recv(1) == b"x"


def test_the_path_may_be_longer_than_an_address_can_be(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 200)
    folder.mkdir()
    here = Path.cwd()
    os.chdir(folder)
    try:
        listening = listen(Path("serve.sock"))
    finally:
        os.chdir(here)
    with listening:
        connected = connect_to(folder / "serve.sock")
        assert connected is not None
        connected.close()


def test_a_link_to_another_socket_is_not_followed(tmp_path: Path) -> None:
    with listen(tmp_path / "docker.sock"):
        (tmp_path / "serve.sock").symlink_to(tmp_path / "docker.sock")
        with pytest.raises(EngineAway, match="no socket"):
            connect_to(tmp_path / "serve.sock")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, Path.touch], ids=["a fifo", "a folder", "a file"])
def test_what_is_no_socket_is_not_opened(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "serve.sock")
    with pytest.raises(EngineAway, match="no socket"):
        connect_to(tmp_path / "serve.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_socket_of_another_user_is_not_connected_to(tmp_path: Path) -> None:
    with listen(tmp_path / "serve.sock"):
        os.chown(tmp_path / "serve.sock", 12345, 12345)
        with pytest.raises(EngineAway, match="another user"):
            connect_to(tmp_path / "serve.sock")
        os.chown(tmp_path, 12345, 12345)  # the container's own folder
        connected = connect_to(tmp_path / "serve.sock")
        assert connected is not None
        connected.close()


def test_nobody_there_is_an_engine_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(EngineAway, match="opened"):
        connect_to(tmp_path / "serve.sock")
    listen(tmp_path / "serve.sock").close()
    with pytest.raises(EngineAway, match="answer"):
        connect_to(tmp_path / "serve.sock")


def test_a_socket_whose_queue_is_full_is_tried_again(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "serve.sock"))
    listening.listen(0)
    with listening:
        held = []
        while (connected := connect_to(tmp_path / "serve.sock")) is not None:
            held.append(connected)
            assert len(held) < 10
        for one in held:
            one.close()


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/v1/chat/completions", True),
        ("/souk/v1/commitments?x=%20y/../z", True),
        ("/health", True),
        ("/", False),
        ("/metrics", False),
        ("/v1", False),
        ("/healthy", False),
        ("/v1/../metrics", False),
        ("/v1/%2e%2e/metrics", False),
        ("/v1//metrics", False),
        ("/v1/.\\metrics", False),
    ],
)
def test_only_an_engines_own_paths_pass(path: str, passes: bool) -> None:
    assert is_passable(path) is passes


# --- engines that are Mallory's, through a whole tunnel


def saying(data: bytes, *, closes: bool = False) -> Callable[..., Awaitable[None]]:
    """An engine that sends this answer to every request."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        if closes:
            writer.close()
        else:
            await reader.read()

    return talk


@pytest.mark.parametrize(
    "answer",
    [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\na: " + b"b" * 50_000, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000],
)
def test_an_engine_that_speaks_no_http_fails_its_request_alone(answer: bytes) -> None:
    async def scenario() -> None:
        async with world(talk=saying(answer)) as made:
            with pytest.raises(UpstreamError, match="passed on") as caught:
                await made.ask()
            assert caught.value.is_sent
            assert made.hub.upstream(made.lease_id) is not None, "the tunnel is there"

    run(scenario())


def test_an_answer_that_is_cut_off_is_an_error_and_never_the_end() -> None:
    async def scenario() -> None:
        response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n"
        async with world(talk=saying(response, closes=True)) as made:
            answer = await made.ask()
            with pytest.raises(UpstreamError, match="within its response"):
                assert [chunk async for chunk in answer.chunks()] != [b"ok"]
            assert made.tunnels.counts(made.lease_id).failed == 1

    run(scenario())


def test_an_engine_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "HEAD_SECONDS_MAX", 0.1)

    async def scenario() -> None:
        async with world(talk=saying(b"")) as made:
            with pytest.raises(UpstreamError, match="did not begin an answer"):
                await made.ask()
            assert made.tunnels.in_flight(made.lease_id) == 0

    run(scenario())


def test_an_engine_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SILENCE_SECONDS_MAX", 0.1)

    async def scenario() -> None:
        async with world(talk=saying(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")) as made:
            answer = await made.ask()
            with pytest.raises(UpstreamError, match="silent"):
                assert [chunk async for chunk in answer.chunks()]

    run(scenario())


def test_an_engine_without_end_is_read_no_faster_than_its_reader() -> None:
    sent = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(10_000):
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    async def scenario() -> None:
        async with world(talk=talk) as made:
            answer = await made.ask()
            await until(lambda: sent)
            before = -1
            while before != sent:  # until it stands still
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 2_000_000, "what lies between the engine and a reader who does not read"
            await answer.close()
            await until(lambda: made.tunnels.in_flight(made.lease_id) == 0)

    run(scenario())


def test_a_socket_that_appears_later_is_found_and_until_then_nothing_is_sent() -> None:
    async def scenario() -> None:
        async with world() as made:
            with pytest.raises(UpstreamError, match="cannot be opened") as caught:
                await made.ask()
            assert not caught.value.is_sent, "another replica may be asked"
            server = await asyncio.start_unix_server(saying(ANSWER), made.socket)
            assert await made.read() == b"ok"
            server.close()

    run(scenario())


def test_words_that_nobody_asked_for_end_a_connection_that_waits() -> None:
    asked = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await reader.read(65_536):
            asked += 1
            writer.write(ANSWER)
            await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    async def scenario() -> None:
        async with world(talk=talk) as made:
            assert await made.read() == b"ok"
            await asyncio.sleep(0.2)
            assert await made.read() == b"ok"
            assert asked == 2

    run(scenario())


def test_what_concerns_one_connection_alone_is_not_passed_on() -> None:
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)

    async def scenario(headers: list[tuple[bytes, bytes]]) -> None:
        async with world(talk=talk) as made:
            await _ask_and_read(made, headers)

    run(scenario([(b"host", b"evil"), (b"connection", b"upgrade"), (b"transfer-encoding", b"chunked"), (b"x-a", b"b")]))
    assert heads == [b"POST /v1/x HTTP/1.1\r\nHost: engine\r\nx-a: b\r\ncontent-length: 0\r\n\r\n"]


async def _ask_and_read(made: World, headers: list[tuple[bytes, bytes]]) -> None:
    answer = await made.ask(headers=headers)
    assert b"".join([chunk async for chunk in answer.chunks()]) == b"ok"
