"""A replica, an agent, a tunnel's connection and the gateway are killed in the middle of a hundred streams.

Every caller gets the whole text, the very one that an unbroken stream gives; or gets an explicit error; or sees its
connection break, and may send again. Nothing ends as if it were complete. Every token is billed once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import openai
import pytest

from jobs.gateway.messages import UsageRow
from runtimes.contract import Capability
from tests.fakes.engine import Model, asks
from tests.fakes.relay import Relay
from tests.fakes.serving_stack import Process, Replica, Stack
from tests.integration.jobs.gateway.crowd import BROKEN, COMPLETE, CUT, ERROR, Crowd, Seen, struck

CALLERS = 100
TOKENS, TOKEN_MS = 150, 60  # so slow that all are under way when the blow falls, also on a busy computer
REST_MS = 10  # of each token after it: nothing hangs on how long the rest takes
FIXED = tuple(set(Capability) - {Capability.CONTINUES})  # an engine that cannot go on with an answer


class World:
    """Two replicas on two nodes behind one gateway, whose tunnels go through a relay."""

    def __init__(self, folder: Path, capabilities: tuple[Capability, ...]) -> None:
        self.stack = stack = Stack(folder)
        self.relay = Relay(stack.gateway_port)
        self.replicas: list[Replica] = [
            stack.start_engine(tokens=TOKENS, token_ms=TOKEN_MS, capabilities=capabilities) for _ in range(2)
        ]
        stack.start_gateway(url=f"ws://127.0.0.1:{self.relay.port}")
        self.agents: list[Process] = [stack.start_provider(each) for each in self.replicas]
        stack.wait_ready(2)

    def crowd(self) -> Crowd:
        self.set_pace(TOKEN_MS)
        return Crowd(self.stack.base_url, self.stack.key, CALLERS)

    def shares(self) -> list[int]:
        """Streams at each replica now."""
        return [each.engine.stats()["in_flight"] for each in self.replicas]

    def set_pace(self, token_ms: float) -> None:
        """Of the engines that are alive."""
        for each in self.replicas:
            with suppress(OSError):
                each.engine.call("POST", "/fake/pace", {"token_ms": token_ms})

    def cancelled(self) -> int:
        """Requests whose callers hung up, at both engines."""
        return sum(each.engine.stats()["cancelled"] for each in self.replicas)

    def close(self) -> None:
        self.stack.close()
        self.relay.close()


@pytest.fixture(scope="module", params=[tuple(Capability)], ids=["continuing"])
def world(tmp_path_factory, request) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("kills"), request.param)
    yield made
    made.close()


def text_of(seen: Seen) -> str:
    """The text of an unbroken stream."""
    body = {"messages": [{"role": "user", "content": seen.prompt}]}
    return asks.read("chat", body, Model(answer_tokens=TOKENS)).choices[0].text


def assert_truth(crowd: Crowd, rows: list[UsageRow]) -> None:
    """Nobody was given a wrong or doubled word, and nobody pays for one token twice."""
    assert Counter((row.request_id, row.part) for row in rows).most_common(1)[0][1] == 1
    written: dict[str, int] = defaultdict(int)
    for row in rows:
        written[str(row.request_id)] += row.output_tokens
    for seen in crowd.seen:
        whole = text_of(seen)
        if seen.outcome == COMPLETE:
            assert seen.text == whole
            assert written[seen.request_id] == TOKENS
        else:
            assert whole.startswith(seen.text)
            assert written[seen.request_id] <= TOKENS


def rows_of(world: World, crowd: Crowd) -> list[UsageRow]:
    """All rows, once every stream that the gateway ended has its last one."""

    def are_there(_: object) -> bool:
        rows = world.stack.control.usage()
        found = {str(row.request_id) for row in rows}
        ok = {str(row.request_id) for row in rows if row.status == "ok"}
        return all(seen.request_id in (ok if seen.outcome == COMPLETE else found) for seen in crowd.seen)

    state = world.stack.control.wait_until(are_there)
    assert state["problems"] == []
    return world.stack.control.usage()


@pytest.mark.parametrize("victim", ["tunnel", "agent", "replica"])
def test_every_stream_goes_on_elsewhere_word_for_word(world, victim):
    agent, engine = world.agents[0], world.replicas[0].engine
    blow, heal = {
        "tunnel": (world.relay.cut, lambda: None),
        "agent": (agent.kill, agent.start),
        "replica": (engine.kill, engine.start),
    }[victim]
    crowd = world.crowd()
    shares: list[int] = []

    def strike() -> None:
        shares.extend(world.shares())
        blow()
        world.set_pace(REST_MS)

    outcomes = struck(crowd, strike)
    print(victim, shares, dict(outcomes))
    assert min(shares) > 0  # both were at work
    assert outcomes == {COMPLETE: CALLERS}
    rows = rows_of(world, crowd)
    assert_truth(crowd, rows)
    moved = {row.request_id for row in rows if row.part > 0} & {UUID(seen.request_id) for seen in crowd.seen}
    # Of those that were there a moment before the blow, a few may have ended by themselves meanwhile.
    assert 0 < len(moved) <= (sum(shares) if victim == "tunnel" else shares[0])
    heal()
    world.stack.wait_ready(2)


def test_a_killed_gateway_breaks_every_stream_visibly_and_bills_nothing_twice(world):
    client = openai.OpenAI(base_url=world.stack.base_url, api_key=world.stack.key, max_retries=0)
    messages = [{"role": "user", "content": "before it is killed"}]
    before = client.chat.completions.with_raw_response.create(model="fake", messages=messages, max_tokens=2).request_id
    world.stack.control.wait_until(lambda _: before in {str(row.request_id) for row in world.stack.control.usage()})
    taken = world.stack.control.state()["rows_taken"]
    cancelled = world.cancelled()
    crowd = world.crowd()
    outcomes = struck(crowd, world.stack.gateway.kill)
    print("gateway", dict(outcomes))
    assert outcomes == {BROKEN: CALLERS}
    assert CUT not in outcomes
    world.stack.gateway.start()
    patient = client.with_options(max_retries=20)
    answer = patient.chat.completions.create(model="fake", messages=messages, max_tokens=2)
    assert answer.usage.completion_tokens == 2
    assert_truth(crowd, world.stack.usage(taken + 1))
    assert world.stack.control.state()["problems"] == []
    world.stack.control.wait_until(lambda _: sum(world.shares()) == 0)
    assert world.cancelled() >= cancelled + CALLERS  # nothing was computed to its end for those who are gone


@pytest.mark.parametrize("world", [FIXED], indirect=True, ids=["no continuing"])
def test_where_no_engine_can_go_on_each_caller_gets_an_error(world):
    crowd = world.crowd()
    shares: list[int] = []

    def blow() -> None:
        shares.extend(world.shares())
        world.replicas[0].engine.kill()
        world.set_pace(REST_MS)

    outcomes = struck(crowd, blow)
    print(shares, dict(outcomes))
    assert outcomes == {COMPLETE: shares[1], ERROR: shares[0]}
    assert {seen.error["code"] for seen in crowd.seen if seen.outcome == ERROR} == {"replica_lost"}
    assert_truth(crowd, rows_of(world, crowd))
