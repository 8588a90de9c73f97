"""What the gateway asks for itself is no use of a replica: the agent does not count it, and the engine does not see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobs.gateway.accounting.auditing import Auditor
from jobs.gateway.answering.probing import Probing
from jobs.gateway.routing.replica_pool import ReplicaPool
from jobs.gateway.routing.replica_view import ReplicaView
from provider_agent.protocol.tunnel.frames import OWN_REQUEST
from tests.fakes.tunnelled import World, row, run, world
from tests.unit.jobs.gateway.stage import Marketplace, chat, endpoint_for, gateway, grant_for, until

ANSWER = json.dumps({"choices": [{"text": "1"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()


class Engine:
    """Answers one token, and notes what it was sent."""

    def __init__(self) -> None:
        self.headers: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.headers.append(dict(scope["headers"]))
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": ANSWER})


async def probe(up: World) -> None:
    """As the gateway probes a replica without requests."""
    nowhere: Any = None
    pool = ReplicaPool(up.hub, nowhere, lambda lease_id: None, lambda: 1.0)
    view = ReplicaView(up.hub.announced()[up.lease_id], now=0.0)
    await Probing(up.hub, pool, lambda: 1.0).probe(up.lease_id, view)
    assert view.is_good


def test_probes_of_an_idle_replica_leave_the_count_of_its_agent_at_zero() -> None:
    async def scenario() -> None:
        engine = Engine()
        async with world(engine) as up:
            for _ in range(3):
                await probe(up)
            counts = up.tunnels.counts(up.lease_id)
            assert (counts.requests, counts.input_tokens, counts.output_tokens, counts.without_usage) == (0, 0, 0, 0)
            assert counts.own == 3
            assert await up.read() == ANSWER  # a caller's
            counts = up.tunnels.counts(up.lease_id)
            assert (counts.requests, counts.input_tokens, counts.output_tokens, counts.own) == (1, 1, 1, 3)

    run(scenario())


def test_checks_of_another_replicas_answers_are_no_use_of_the_checker() -> None:
    async def scenario() -> None:
        async with world(Engine()) as up:
            directory: Any = None
            await Auditor(up.hub, directory)._post(up.lease_id, b"{}")
            assert up.tunnels.counts(up.lease_id).requests == 0

    run(scenario())


def test_engine_cannot_tell_a_probe_from_a_request_by_its_headers() -> None:
    async def scenario() -> None:
        engine = Engine()
        async with world(engine) as up:
            await probe(up)
            await up.ask(headers=[(b"content-type", b"application/json")])
            of_probe, of_request = engine.headers
            assert sorted(of_probe) == sorted(of_request)
            assert all(OWN_REQUEST[0] not in seen for seen in engine.headers)

    run(scenario())


def test_answers_that_were_cut_off_are_counted_as_without_usage() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def scenario() -> None:
        async with world(silent) as up:
            answer = await up.ask(f"/v1/{uuid4()}")
            await answer.close()
            while up.tunnels.in_flight(up.lease_id):
                await up.hub.is_expected("")
            counts = up.tunnels.counts(up.lease_id)
            assert (counts.requests, counts.without_usage) == (1, 1)

    run(scenario())


def test_usage_is_counted_whatever_a_caller_asks_for_behind_it() -> None:
    """Else any caller of vLLM (`prompt_logprobs`), or of a verified endpoint, holds back an honest provider's pay."""

    async def talkative(scope: Any, receive: Any, send: Any) -> None:
        answer = json.loads(ANSWER) | {"prompt_logprobs": [{"1": {"logprob": -1.5}}] * 1000}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def scenario() -> None:
        async with world(talkative) as up:
            answer = await up.ask()
            assert b"prompt_logprobs" in b"".join([piece async for piece in answer.chunks()])
            counts = up.tunnels.counts(up.lease_id)
            assert (counts.requests, counts.input_tokens, counts.without_usage) == (1, 1, 0)

    run(scenario())


def test_caller_who_calls_a_request_a_probe_is_counted_by_gateway_and_agent(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine()
        async with world(engine) as up:
            marketplace = Marketplace()
            served = marketplace.serve(endpoint_for("tiny"))
            replica = row(up.lease_id, up.node).model_copy(update={"endpoint_id": served.endpoint_id})
            marketplace.replicas.append(replica)
            marketplace.let(grant_for("mallory"))
            async with marketplace.open(), gateway(marketplace, tmp_path, replicas=up.hub) as called:
                mark = {name.decode(): value.decode() for name, value in [OWN_REQUEST]}
                assert (await called.post(chat(), key="mallory", headers=mark)).status == 200
                await until(lambda: marketplace.usage)
            [used] = marketplace.usage
            assert (used.lease_id, used.input_tokens, used.is_reported) == (up.lease_id, 1, True)
            counts = up.tunnels.counts(up.lease_id)
            assert (counts.requests, counts.input_tokens, counts.own) == (1, 1, 0)

    run(scenario())
