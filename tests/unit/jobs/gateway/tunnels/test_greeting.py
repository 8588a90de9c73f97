"""Who may have a tunnel, and whose: Mallory has a node of her own, and listens where she can."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from jobs.gateway.tunnels.handshakes import Handshake, Handshakes
from jobs.gateway.tunnels.hub import HANDSHAKES_PER_ADDRESS_MAX
from provider_agent.protocol import GatewayPlace, ServePlace
from provider_agent.protocol.tunnel import hello
from provider_agent.protocol.tunnel.frames import PATH, Kind, pack, pack_announce
from provider_agent.protocol.tunnel.hello import Answer, Proof
from provider_agent.tunnel import Tunnels
from tests.fakes.tunnelled import READY, Gateway, World, public_of, row, run, until, world


async def handshake(gateway: Gateway, node: Ed25519PrivateKey, **changed: Any) -> ClientConnection:
    """Dial as an agent does, with what Mallory changes in her hello; returns once her answer is sent."""
    connection = await connect(gateway.url + PATH, compression=None)
    mine = hello.say_hello(node, boot=secrets.token_hex(16), url=gateway.url).model_copy(update=changed)
    await connection.send(mine.model_dump_json())
    proof = Proof.model_validate_json(await connection.recv())
    await connection.send(hello.answer(node, mine, proof, public_of(gateway.key)).model_dump_json())
    return connection


async def code_of(connection: ClientConnection) -> int:
    """With which it is closed."""
    with pytest.raises(ConnectionClosed):
        while True:
            await connection.recv()
    assert connection.close_code is not None
    return connection.close_code


async def expect_refusal(gateway: Gateway, node: Ed25519PrivateKey, **changed: Any) -> None:
    """The gateway closes."""
    with pytest.raises(ConnectionClosed) as caught:
        connection = await handshake(gateway, node, **changed)
        while True:
            await connection.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 4403


def in_a_world(scenario: Any) -> None:
    """With Alice's replica up at Bob's node."""

    async def backend() -> None:
        async with world() as made:
            await scenario(made)
            assert set(made.hub.announced()) == {made.lease_id}

    run(backend())


def test_a_node_of_which_nothing_is_expected_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.gateway.tunnels.hub.EXPECTING_SECONDS", 0.1)

    async def scenario(made: World) -> None:
        await expect_refusal(made.gateway, Ed25519PrivateKey.generate())

    in_a_world(scenario)


def test_an_agent_that_is_quicker_than_the_table_need_not_dial_again() -> None:
    async def scenario(made: World) -> None:
        early = Ed25519PrivateKey.generate()
        greeting = asyncio.create_task(handshake(made.gateway, early))
        await asyncio.sleep(0.1)
        assert not greeting.done()
        made.hub.allow([row(made.lease_id, made.node), row(uuid4(), early)])
        await (await greeting).close()

    in_a_world(scenario)


def test_a_gateway_cannot_send_an_agent_elsewhere() -> None:
    asked: list[str] = []

    async def elsewhere(connection: ServerConnection) -> None:
        asked.append("elsewhere")

    async def scenario() -> None:
        async with serve(elsewhere, "127.0.0.1", 0) as inner:
            target = f"ws://127.0.0.1:{inner.sockets[0].getsockname()[1]}{PATH}"

            def redirect(connection: ServerConnection, request: Request) -> Response:
                return Response(302, "Found", Headers({"Location": target, "Content-Length": "0"}))

            async with serve(elsewhere, "127.0.0.1", 0, process_request=redirect) as server:
                url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
                key = public_of(Ed25519PrivateKey.generate())
                place = ServePlace(endpoint_id=uuid4(), gateways=[GatewayPlace(url=url, public_key=key)])
                tunnels = Tunnels(Ed25519PrivateKey.generate())
                tunnels.announce(uuid4(), place, Path("serve.sock"), READY)
                (status,) = await until(lambda: [one for one in tunnels.status() if one["why"]])
                await tunnels.close()
                assert "302" in status["why"]

    run(scenario())
    assert asked == []


def test_nobody_passes_for_a_node_without_its_key() -> None:
    async def scenario(made: World) -> None:
        await expect_refusal(made.gateway, Ed25519PrivateKey.generate(), node_key=public_of(made.node))

    in_a_world(scenario)


def test_an_answer_that_was_received_before_is_worth_nothing() -> None:
    async def scenario(made: World) -> None:
        connection = await connect(made.gateway.url + PATH, compression=None)
        mine = hello.say_hello(made.node, boot="0" * 32, url=made.gateway.url)
        await connection.send(mine.model_dump_json())
        proof = Proof.model_validate_json(await connection.recv())
        recorded = hello.answer(made.node, mine, proof, public_of(made.gateway.key)).model_dump_json()
        again = await connect(made.gateway.url + PATH, compression=None)
        await again.send(mine.model_dump_json())
        await again.recv()
        await again.send(recorded)
        assert await code_of(again) == 4403

    in_a_world(scenario)


def test_a_hello_meant_for_another_gateway_is_refused() -> None:
    async def scenario(made: World) -> None:
        await expect_refusal(made.gateway, made.node, url="wss://gateway.example.org")

    in_a_world(scenario)


def test_a_version_that_is_not_spoken_is_refused() -> None:
    async def scenario(made: World) -> None:
        await expect_refusal(made.gateway, made.node, version=2)

    in_a_world(scenario)


def test_a_node_announces_its_own_leases_and_nobody_elses() -> None:
    async def scenario(made: World) -> None:
        mallory, hers = Ed25519PrivateKey.generate(), uuid4()
        made.hub.allow([row(made.lease_id, made.node), row(hers, mallory)])
        connection = await handshake(made.gateway, mallory)
        for lease_id in (made.lease_id, hers):
            await connection.send(pack(Kind.ANNOUNCE, 0, pack_announce(lease_id, {"engine": "hers"})))
        await until(lambda: hers in made.hub.announced())
        assert made.hub.announced()[made.lease_id].engine == "test"
        await connection.send(pack(Kind.WITHDRAW, 0, made.lease_id.bytes))
        await connection.send(pack(Kind.WITHDRAW, 0, hers.bytes))
        await until(lambda: hers not in made.hub.announced())

    in_a_world(scenario)


@pytest.mark.parametrize(
    "message",
    ["text", b"\x01", pack(Kind.DATA, 5, b"x"), pack(Kind.OPEN, 1, b"x" * 40), bytes(300_000)],
    ids=["text", "half a frame", "no such stream", "an open", "too long"],
)
def test_what_is_no_frame_ends_that_tunnel_alone(message: str | bytes) -> None:
    async def scenario(made: World) -> None:
        mallory, hers = Ed25519PrivateKey.generate(), uuid4()
        made.hub.allow([row(made.lease_id, made.node), row(hers, mallory)])
        connection = await handshake(made.gateway, mallory)
        await connection.send(message)
        assert await code_of(connection) == 4400
        made.hub.allow([row(made.lease_id, made.node)])

    in_a_world(scenario)


@pytest.mark.parametrize("message", ["", "{}", "[]", json.dumps({"node_key": "0" * 64}), "x" * 10_000])
def test_what_is_no_hello_is_sent_away(message: str) -> None:
    async def scenario(made: World) -> None:
        connection = await connect(made.gateway.url + PATH, compression=None)
        await connection.send(message)
        assert await code_of(connection) in {4400, 4403}

    in_a_world(scenario)


def test_whoever_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello, "HELLO_SECONDS_MAX", 0.2)

    async def scenario() -> None:
        async with world(is_up=False) as made:
            connection = await connect(made.gateway.url + PATH, compression=None)
            assert await code_of(connection) == 4408

    run(scenario())


def test_idle_connections_do_not_lock_agents_out_of_tunnels() -> None:
    async def scenario(made: World) -> None:
        mallory, hers = Ed25519PrivateKey.generate(), uuid4()
        made.hub.allow([row(made.lease_id, made.node), row(hers, mallory)])
        idle = [await connect(made.gateway.url + PATH, compression=None) for _ in range(300)]
        connection = await handshake(made.gateway, mallory)
        await connection.send(pack(Kind.ANNOUNCE, 0, pack_announce(hers, READY)))
        await until(lambda: hers in made.hub.announced())
        assert await code_of(idle[0]) == 4408  # the oldest was closed
        for each in (connection, *idle):
            each.transport.abort()
        await until(lambda: hers not in made.hub.announced())

    in_a_world(scenario)


def test_who_floods_through_a_proxy_ends_only_their_own_handshakes() -> None:
    async def scenario() -> None:
        async with world(is_up=False, proxies="127.0.0.0/8") as made:
            dialled = made.gateway.url + PATH

            def dial(address: str) -> connect:
                return connect(dialled, compression=None, additional_headers={"X-Forwarded-For": address})

            made.hub.allow([row(made.lease_id, made.node)])
            agent = await dial("192.0.2.1")
            idle = [await dial("198.51.100.7") for _ in range(HANDSHAKES_PER_ADDRESS_MAX + 1)]
            assert await code_of(idle[0]) == 4408
            mine = hello.say_hello(made.node, boot="0" * 32, url=made.gateway.url)
            await agent.send(mine.model_dump_json())
            Proof.model_validate_json(await agent.recv())
            for each in (agent, *idle):
                each.transport.abort()

    run(scenario())


def test_a_header_that_no_proxy_vouches_for_evades_no_bound(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: World) -> None:
        forged = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(HANDSHAKES_PER_ADDRESS_MAX + 1)]
        dialled = made.gateway.url + PATH
        idle = [await connect(dialled, compression=None, additional_headers=each) for each in forged]
        assert await code_of(idle[0]) == 4408
        for each in idle:
            each.transport.abort()

    in_a_world(scenario)
    assert [one.message for one in caplog.records if "SOUK_GATEWAY_TRUSTED_PROXIES" in one.message] != []


def test_of_many_handshakes_the_oldest_of_the_busiest_address_ends() -> None:
    async def wait(handshake: Handshake) -> str:
        try:
            async with handshake.run():
                await asyncio.sleep(60)
        except TimeoutError:
            return "ended"
        return "stayed"

    async def scenario() -> None:
        handshakes = Handshakes(4, 3)
        with contextlib.ExitStack() as stack:

            def begin(address: str) -> asyncio.Task[str]:
                return asyncio.create_task(wait(stack.enter_context(handshakes.begin(address))))

            bob, first = begin("192.0.2.1"), begin("2001:db8::1")
            await asyncio.sleep(0)
            others = [begin(f"2001:db8::{number}") for number in range(2, 6)]
            await asyncio.sleep(0.01)
            assert await first == "ended"
            assert [other.done() for other in others] == [True, False, False, False]
            assert not bob.done()
            for task in (bob, *others):
                task.cancel()
        assert handshakes.count == 0

    asyncio.run(scenario())


def test_a_node_has_only_so_many_tunnels_and_the_newest_stay() -> None:
    async def scenario(made: World) -> None:
        mallory, hers = Ed25519PrivateKey.generate(), uuid4()
        made.hub.allow([row(made.lease_id, made.node), row(hers, mallory)])
        connections = [await handshake(made.gateway, mallory) for _ in range(10)]
        for connection in connections[:2]:
            assert await code_of(connection) == 4409
        await connections[-1].send(pack(Kind.ANNOUNCE, 0, pack_announce(hers, READY)))
        await until(lambda: hers in made.hub.announced())
        for connection in connections:
            await connection.close()
        await until(lambda: hers not in made.hub.announced())

    in_a_world(scenario)


def test_an_agent_says_nothing_to_a_gateway_without_the_pinned_key() -> None:
    received: list[Any] = []
    real, false = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()

    async def mallorys(connection: ServerConnection) -> None:
        hello_received = hello.read(hello.Hello, await connection.recv())
        await connection.send(hello.prove(false, hello_received).model_dump_json())
        async for message in connection:
            received.append(message)

    async def scenario() -> None:
        async with serve(mallorys, "127.0.0.1", 0, compression=None) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            place = ServePlace(endpoint_id=uuid4(), gateways=[GatewayPlace(url=url, public_key=public_of(real))])
            tunnels = Tunnels(Ed25519PrivateKey.generate())
            async with world() as made:
                tunnels.announce(uuid4(), place, made.socket, READY)
                (status,) = await until(lambda: [one for one in tunnels.status() if one["why"]])
            await tunnels.close()
            assert "does not hold this gateway's key" in status["why"]
            assert not status["is_up"]

    run(scenario())
    assert received == []


def test_a_proof_fits_one_hello_one_gateway_and_one_node() -> None:
    gateway, node = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    mine = hello.say_hello(node, boot="0" * 32, url="wss://a")
    proof = hello.prove(gateway, mine)
    answered = hello.answer(node, mine, proof, public_of(gateway))
    assert hello.is_proven(mine, proof, public_of(gateway))
    assert hello.is_answered(mine, proof, public_of(gateway), answered)
    for changed in (
        {"url": "wss://b"},
        {"challenge": "1" * 64},
        {"boot": "1" * 32},
        {"node_key": public_of(gateway)},
    ):
        other = mine.model_copy(update=changed)
        assert not hello.is_proven(other, proof, public_of(gateway))
        assert not hello.is_answered(other, proof, public_of(gateway), answered)
    assert not hello.is_answered(mine, proof, public_of(gateway), Answer(signature=proof.signature))
    assert not hello.is_answered(mine, proof, public_of(node), answered)


def test_an_agent_refuses_what_was_not_announced_to_a_gateway() -> None:
    async def scenario(made: World) -> None:
        from jobs.gateway.tunnels.answers import TunnelAnswer
        from provider_agent.protocol.tunnel.frames import Open

        (tunnel,) = made.hub._tunnels[public_of(made.node)]
        answer = TunnelAnswer(tunnel.mux.open(Open(uuid4(), "POST", "/v1/x", [])))
        with pytest.raises(Exception, match="not announced to this gateway"):
            await asyncio.wait_for(answer.until_head(5), 5)

    in_a_world(scenario)
