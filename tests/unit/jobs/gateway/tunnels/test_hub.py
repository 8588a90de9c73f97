"""A replica behind a tunnel, as a gateway has it: called, streamed from, cancelled, lost, found again."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import uuid4

import pytest

from jobs.gateway.engines.upstream import UpstreamError
from provider_agent.protocol.tunnel.frames import WINDOW_MAX
from provider_agent.tunnel import Tunnels, gateway_connection
from tests.fakes.tunnelled import READY, gateway, row, run, until, world


class Engine:
    """An ASGI application: echoes, streams for ever, and knows who went away."""

    def __init__(self) -> None:
        self.left = 0
        self.open = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.open += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.open -= 1

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-method", scope["method"].encode())]})
        if scope["path"] == "/v1/for-ever":
            left = asyncio.create_task(receive())
            while not left.done():
                await send({"type": "http.response.body", "body": b"data: token\n\n", "more_body": True})
                await asyncio.sleep(0.01)
            self.left += 1
        elif scope["path"] == "/v1/slow":
            await receive()
            self.left += 1
        elif scope["path"] == "/v1/usage":
            usage = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 5}}'
            await send({"type": "http.response.body", "body": usage})
        else:
            await send({"type": "http.response.body", "body": body})


def test_a_request_goes_through_and_its_answer_comes_back() -> None:
    async def scenario() -> None:
        async with world(Engine()) as made:
            answer = await made.ask("/v1/echo", b"hello")
            assert answer.status == 200
            assert (b"x-method", b"POST") in answer.headers
            assert [chunk async for chunk in answer.chunks()] == [b"hello"]
            announced = made.hub.announced()[made.lease_id]
            assert (announced.engine, announced.capabilities, announced.context) == ("test", frozenset({"chat"}), 512)
            await made.read("/v1/usage")
            counts = made.tunnels.counts(made.lease_id)
            assert (counts.requests, counts.input_tokens, counts.output_tokens, counts.without_usage) == (2, 3, 5, 1)
            (status,) = made.tunnels.status()
            assert status["is_up"]
            assert status["leases"] == 1
            (served,) = made.tunnels.served()
            assert (served["lease_id"], served["requests"], served["output_tokens"]) == (str(made.lease_id), 2, 5)
            made.tunnels.withdraw(made.lease_id)
            assert made.tunnels.served() == []

    run(scenario())


def test_large_bodies_and_small_ones_share_a_tunnel() -> None:
    async def scenario() -> None:
        async with world(Engine()) as made:
            bodies = [os.urandom(3 * WINDOW_MAX), b"small", b"", os.urandom(WINDOW_MAX)] * 3
            assert await asyncio.gather(*(made.read("/v1/echo", body) for body in bodies)) == bodies

    run(scenario())


def test_a_reader_who_stands_still_holds_up_nobody() -> None:
    async def scenario() -> None:
        async with world(Engine()) as made:
            still = [await made.ask("/v1/echo", bytes(3 * WINDOW_MAX)) for _ in range(20)]
            assert await made.read("/v1/echo", b"quick") == b"quick"
            for answer in still:
                assert len(b"".join([chunk async for chunk in answer.chunks()])) == 3 * WINDOW_MAX

    run(scenario())


def test_letting_go_of_an_answer_stops_the_engine() -> None:
    engine = Engine()

    async def scenario() -> None:
        async with world(engine) as made:
            answer = await made.ask("/v1/for-ever")
            assert b"token" in await anext(answer.chunks())
            await answer.close()
            await answer.close()
            await until(lambda: engine.left == 1)
            with pytest.raises(UpstreamError):
                await anext(answer.chunks())
            assert made.tunnels.in_flight(made.lease_id) == 0

    run(scenario())


def test_a_caller_who_waits_no_longer_stops_the_engine() -> None:
    came = gone = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came, gone
        came += 1
        await reader.read(65_536)
        gone += await reader.read() == b""

    async def scenario() -> None:
        async with world(talk=talk) as made:
            waiting = asyncio.create_task(made.ask())
            await until(lambda: came == 1)
            waiting.cancel()
            await until(lambda: gone == 1)
            with pytest.raises(UpstreamError, match="in time") as caught:
                await made.ask(seconds=1)
            assert caught.value.is_sent
            await until(lambda: gone == 2)

    run(scenario())


def test_what_an_agent_withdrew_takes_nothing_new_and_ends_what_it_has() -> None:
    engine = Engine()

    async def scenario() -> None:
        async with world(engine) as made:
            upstream = made.hub.upstream(made.lease_id)
            answer = await made.ask("/v1/for-ever")
            made.tunnels.withdraw(made.lease_id)
            await until(lambda: not made.hub.announced())
            assert made.hub.upstream(made.lease_id) is None
            with pytest.raises(UpstreamError) as caught:
                await upstream.request("POST", "/v1/echo", [], b"", seconds=5)
            assert not caught.value.is_sent
            assert b"token" in await anext(answer.chunks())
            made.tunnels.break_off(made.lease_id)
            with pytest.raises(UpstreamError, match="stopped"):
                while True:
                    await anext(answer.chunks())
            await until(lambda: engine.left == 1)
            await until(lambda: not made.tunnels.status())  # nobody is left to ask: the tunnel is closed

    run(scenario())


def test_a_path_that_is_not_an_engines_never_reaches_it() -> None:
    engine = Engine()

    async def scenario() -> None:
        async with world(engine) as made:
            for method, path in (("POST", "/admin"), ("POST", "/v1/../admin"), ("DELETE", "/v1/x")):
                with pytest.raises(UpstreamError, match="does not go") as caught:
                    await made.ask(path, method=method)
                assert not caught.value.is_sent
            assert made.tunnels.counts(made.lease_id).requests == 0

    run(scenario())


def test_a_lost_tunnel_fails_what_is_open_at_once_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_connection, "RETRY_SECONDS_FIRST", 0.01)

    async def scenario() -> None:
        async with world(Engine()) as made:
            answers = [await made.ask("/v1/for-ever") for _ in range(5)]
            (tunnel,) = made.hub._tunnels[next(iter(made.hub._tunnels))]
            changes = len(made.gateway.changes)
            tunnel.end(1012, "lost")
            for answer in answers:
                with pytest.raises(UpstreamError, match="was lost") as caught:
                    while True:
                        await anext(answer.chunks())
                assert caught.value.is_sent
            await until(lambda: len(made.gateway.changes) >= changes + 2)  # it went, and it came
            assert await made.read("/v1/echo", b"again") == b"again"

    run(scenario())


def test_a_silent_agent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.gateway.tunnels.tunnel.HEARTBEAT_SECONDS", 0.7)

    async def scenario() -> None:
        async with world(Engine()) as made:
            answer = await made.ask("/v1/slow")
            with pytest.raises(UpstreamError, match="silent"):
                await anext(answer.chunks())
            assert not made.hub.announced()

    run(scenario())


def test_of_an_agent_that_was_started_again_the_newer_one_has_the_lease() -> None:
    async def scenario() -> None:
        async with world(Engine()) as made:
            newer = Tunnels(made.node)
            newer.announce(made.lease_id, made.gateway.place, made.socket, {**READY, "engine": "newer"})
            await until(lambda: made.hub.announced()[made.lease_id].engine == "newer")
            await made.read()
            assert newer.counts(made.lease_id).requests == 1
            assert made.tunnels.counts(made.lease_id).requests == 0
            await newer.close()
            await until(lambda: made.hub.announced()[made.lease_id].engine == "test")

    run(scenario())


def test_an_agent_that_dials_again_has_given_up_its_tunnel_before() -> None:
    """As where its line got another address: the old connection would stay silent for long."""

    async def scenario() -> None:
        async with world(Engine()) as made:
            answer = await made.ask("/v1/for-ever")
            again = Tunnels(made.node)
            again._boot = made.tunnels._boot
            again.announce(made.lease_id, made.gateway.place, made.socket, READY)
            with pytest.raises(UpstreamError, match="newer"):
                while True:
                    await anext(answer.chunks())
            await made.tunnels.close()
            await until(lambda: made.hub.upstream(made.lease_id))
            assert await made.read("/v1/echo", b"again") == b"again"
            await again.close()

    run(scenario())


def test_a_replica_is_led_to_another_gateway_and_what_the_first_one_streams_goes_on() -> None:
    async def scenario() -> None:
        async with world(Engine()) as made, gateway() as other:
            other.hub.allow([row(made.lease_id, made.node)])
            answer = await made.ask("/v1/for-ever")
            made.tunnels.change_gateways(made.lease_id, [*made.gateway.place.gateways, *other.place.gateways])
            await until(lambda: made.lease_id in other.hub.announced())
            assert made.lease_id in made.hub.announced()
            made.tunnels.change_gateways(made.lease_id, other.place.gateways)
            await until(lambda: made.lease_id not in made.hub.announced())
            chunks = answer.chunks()
            for _ in range(20):
                assert b"token" in await anext(chunks)
            upstream = other.hub.upstream(made.lease_id)
            assert upstream is not None
            again = await upstream.request("POST", "/v1/echo", (), b"here", seconds=5)
            assert b"".join([chunk async for chunk in again.chunks()]) == b"here"
            made.tunnels.withdraw(made.lease_id)
            made.tunnels.change_gateways(made.lease_id, made.gateway.place.gateways)
            await asyncio.sleep(0.1)
            assert made.lease_id not in made.hub.announced(), "who has left is led nowhere"

    run(scenario())


def test_an_announcement_counts_from_when_the_table_has_it_and_no_longer() -> None:
    async def scenario() -> None:
        async with world(Engine()) as made:
            other = uuid4()
            made.tunnels.announce(other, made.gateway.place, made.socket, READY)
            await made.read()
            assert other not in made.hub.announced()
            mine = row(made.lease_id, made.node)
            made.hub.allow([mine, row(other, made.node)])
            assert other in made.hub.announced()
            made.hub.allow([mine])
            assert set(made.hub.announced()) == {made.lease_id}
            assert made.hub.upstream(other) is None

    run(scenario())


@pytest.mark.parametrize(
    "ready",
    [
        {"engine": ["x"], "capabilities": "chat", "context": "512"},
        {"capabilities": [1, None, {}, "chat"], "context": True},
        {"capabilities": {}, "context": -1},
        {"context": 10**30},
    ],
)
def test_nonsense_in_a_ready_event_is_passed_over(ready: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with world(Engine(), is_up=False) as made:
            made.hub.allow([row(made.lease_id, made.node)])
            made.announce(**{"engine": "x", "capabilities": [], "context": None, **ready})
            await until(made.hub.announced)
            announced = made.hub.announced()[made.lease_id]
            assert announced.context is None
            assert announced.capabilities <= {"chat"}
            assert await made.read(body=b"works") == b"works"

    run(scenario())
