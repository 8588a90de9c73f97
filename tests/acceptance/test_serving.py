"""A trained model is served from behind NAT to anyone's client, while nodes, gateway, web and database die.

No part is a fake: `souk up`, agents in network namespaces, engines with the weights that were trained there.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from examples.market import SOUK, MarketError, run, wait_for
from jobs.wire import EndpointView
from tests.acceptance.rack import NODES
from tests.acceptance.serving_world import MODEL, World, serving_world, within
from tests.integration.jobs.gateway.crowd import BROKEN, COMPLETE, Crowd, struck
from tests.integration.tunnels.nat import why_not

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]
CALLERS = 24
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is a list?"}]
SOON_SECONDS, REPLACED_SECONDS, AWAY_SECONDS = 15.0, 120.0, 6.0


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    if why := why_not():
        pytest.skip(why)
    with serving_world() as made:
        yield made


@pytest.fixture(scope="module")
def chat(world: World) -> EndpointView:
    """Two replicas, a node each; the load below needs no third."""
    found = world.serve(world.spec(MODEL, replicas={"min": 2, "max": 2}, scale={"in_flight": CALLERS * 2}), ready=2)
    assert {replica.node_name for replica in found.replicas} == set(NODES)
    return found


def test_anyones_client_is_answered_streamed_to_and_refused_by_name(world: World, chat: EndpointView) -> None:
    name, key = world.key()
    client = world.client(key)
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, temperature=0)
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 12
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == answer.choices[0].message.content
    assert chunks[-1].usage == answer.usage
    assert len(chunks) > 4
    assert world.wait_used(name, 2) == 2 * answer.usage.completion_tokens

    assert [model.id for model in client.models.list()] == [MODEL]
    ask = client.chat.completions.create
    refused: dict[str, tuple[type[openai.APIStatusError], Callable[[], Any]]] = {
        "invalid_api_key": (
            openai.AuthenticationError,
            lambda: world.client("sk-souk-wrong").chat.completions.create(model=MODEL, messages=HELLO),
        ),
        "model_not_found": (openai.NotFoundError, lambda: ask(model="gpt-4o", messages=HELLO)),
        "context_length_exceeded": (
            openai.BadRequestError,
            lambda: ask(model=MODEL, messages=[{"role": "user", "content": "word " * 2_000}], max_tokens=10),
        ),
        "invalid_value": (openai.BadRequestError, lambda: ask(model=MODEL, messages=HELLO, max_tokens=10_000)),
        "unsupported_parameter": (
            openai.BadRequestError,
            lambda: ask(model=MODEL, messages=HELLO, response_format={"type": "json_object"}),
        ),
        "unsupported_operation": (
            openai.BadRequestError,
            lambda: client.embeddings.create(model=MODEL, input="a list"),
        ),
    }
    for code, (kind, act) in refused.items():
        with pytest.raises(kind) as caught:
            act()
        assert caught.value.code == code


def test_hanging_up_stops_the_engine(world: World, chat: EndpointView) -> None:
    stream = world.client(world.key()[1]).chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=400, temperature=0, stream=True
    )
    for _, _ in zip(range(3), stream, strict=False):
        pass
    stream.close()

    def is_idle() -> bool:
        found = world.souk.endpoint(chat.endpoint_id)  # a report from before the end may come between two looks
        return found.in_flight == 0 and not any(each.in_flight for each in found.replicas)

    wait_for("nothing to be under way", is_idle, SOON_SECONDS)


def test_a_revoked_key_and_a_used_up_budget_end_within_seconds(world: World, chat: EndpointView) -> None:
    name, key = world.key()
    client = world.client(key)

    def ask(of: openai.OpenAI = client) -> None:
        of.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=40, temperature=0)

    ask()
    run([SOUK, "keys", "revoke", name, "--yes"], world.alice.env(world.market.server))
    error = within("the key to open nothing", SOON_SECONDS, ask, openai.AuthenticationError)
    assert error.code == "invalid_api_key"
    poor = world.client(world.key("--budget", "0.001")[1])  # some 500 tokens
    error = within("the budget to be used up", 60, lambda: ask(poor), openai.RateLimitError)
    assert error.code == "insufficient_quota"


def test_the_same_weights_make_embeddings(world: World) -> None:
    made = world.serve(world.spec("tiny-embed", engine="embed"))
    client = world.client(world.key()[1])
    answer = client.embeddings.create(model="tiny-embed", input=["a list", "a list", "quite another text"])
    one, same, other = (each.embedding for each in answer.data)
    assert len(one) == 128
    assert sum(a * b for a, b in zip(one, same, strict=True)) == pytest.approx(1, abs=1e-3)
    assert sum(a * b for a, b in zip(one, other, strict=True)) < 0.9999
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        client.chat.completions.create(model="tiny-embed", messages=HELLO)
    world.souk.cancel(made.job_id)
    wait_for("it to end", lambda: world.souk.job(made.job_id).state == "cancelled", REPLACED_SECONDS)
    bill = world.check_books(made.job_id)["bill"]
    assert bill["is_final"] is True
    assert bill["total_usd_micros"] > 0


@pytest.fixture(scope="module")
def unbroken(world: World, chat: EndpointView) -> tuple[dict[str, str], int]:
    """Each caller's answer when nothing breaks, and the tokens of all answers, by the books."""
    name, key = world.key()
    crowd = world.crowd(key, CALLERS)
    outcomes = struck(crowd, lambda: None)
    assert outcomes == {COMPLETE: CALLERS}, [seen.error for seen in crowd.seen]
    return {seen.prompt: seen.text for seen in crowd.seen}, world.wait_used(name, CALLERS)


def test_a_node_dies_under_streams_and_nobody_notices(
    world: World, chat: EndpointView, unbroken: tuple[dict[str, str], int]
) -> None:
    texts, tokens = unbroken
    name, key = world.key()
    crowd = world.crowd(key, CALLERS)
    before = {replica.replica_id for replica in world.wait_ready(chat, 2).replicas}
    had: dict[str, str] = {}

    def lose() -> None:
        had.update({seen.prompt: seen.text for seen in crowd.seen})
        world.lose_node("near")

    try:
        outcomes = struck(crowd, lose)
        found = world.wait_on(chat, 2, {"far"})
    finally:  # the tests after this one need both
        world.bring_back("near")
    assert outcomes == {COMPLETE: CALLERS}, [seen.error for seen in crowd.seen if seen.error]
    for seen in crowd.seen:  # what is drawn after a move is drawn anew
        assert seen.text.startswith(had[seen.prompt])
        assert texts[seen.prompt].startswith(had[seen.prompt])
    assert sum(seen.text == texts[seen.prompt] for seen in crowd.seen) > 0
    assert world.wait_used(name, CALLERS) == tokens, "every token is billed, and none twice"
    assert len({replica.replica_id for replica in found.replicas} & before) == 1, "only the lost one was replaced"
    world.check_books(chat.job_id)


def assert_texts(crowd: Crowd, texts: dict[str, str]) -> None:
    """No caller received a wrong or a doubled token, and only complete answers were marked as complete."""
    for seen in crowd.seen:
        if seen.outcome == COMPLETE:
            assert seen.text == texts[seen.prompt]
        else:
            assert texts[seen.prompt].startswith(seen.text)


def test_the_gateway_dies_under_streams_and_comes_back_as_itself(
    world: World, chat: EndpointView, unbroken: tuple[dict[str, str], int]
) -> None:
    texts, tokens = unbroken
    name, key = world.key()
    client = world.client(key)
    client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
    reported = world.wait_used(name, 1)
    crowd = world.crowd(key, CALLERS)
    gateway = world.child("commands.gateway")
    outcomes = struck(crowd, gateway.kill)
    assert set(outcomes) == {BROKEN}, outcomes
    assert_texts(crowd, texts)
    patient = client.with_options(max_retries=20)
    answer = patient.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
    assert answer.usage is not None
    assert world.child("commands.gateway").pid != gateway.pid
    wait_for("the last request in the books", lambda: world.used(name)[0] >= 2, SOON_SECONDS)
    requests, written = world.used(name)
    assert 2 <= requests <= 2 + CALLERS
    assert reported < written <= reported + answer.usage.completion_tokens + tokens, "no token twice"
    world.wait_ready(chat, 2)
    wait_for(
        "nothing to be computed for who is gone",
        lambda: world.souk.endpoint(chat.endpoint_id).in_flight == 0,
        SOON_SECONDS,
    )
    world.check_books(chat.job_id)


def test_web_dies_and_the_database_is_away_and_known_keys_go_on(
    world: World, chat: EndpointView, unbroken: tuple[dict[str, str], int]
) -> None:
    texts, tokens = unbroken
    name, key = world.key()
    crowd = world.crowd(key, CALLERS)
    assert struck(crowd, world.child("gunicorn").kill) == {COMPLETE: CALLERS}
    assert_texts(crowd, texts)
    wait_for("web to be back", world.souk.endpoints, SOON_SECONDS)
    crowd = world.crowd(key, CALLERS)
    until = time.monotonic() + AWAY_SECONDS
    with world.database_away():
        assert struck(crowd, lambda: None) == {COMPLETE: CALLERS}
        time.sleep(max(until - time.monotonic(), 0))
        world.client(key).chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
    assert_texts(crowd, texts)
    assert world.wait_used(name, 2 * CALLERS + 1) in range(2 * tokens + 1, 2 * tokens + 5)
    world.wait_ready(chat, 2)
    world.check_books(chat.job_id)


def test_an_agent_that_is_restarted_announces_again_and_the_program_goes_on(world: World, chat: EndpointView) -> None:
    name, key = world.key()
    before = {replica.replica_id for replica in world.wait_ready(chat, 2).replicas}
    whole, crowd = (world.crowd(key, CALLERS, temperature=0) for _ in range(2))
    assert struck(whole, lambda: None) == {COMPLETE: CALLERS}
    tokens = world.wait_used(name, CALLERS)

    def restart() -> None:
        agent = world.market.agents["far"]
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
        world.market.start_agent("far")

    assert struck(crowd, restart) == {COMPLETE: CALLERS}, [seen.error for seen in crowd.seen if seen.error]
    assert_texts(crowd, {seen.prompt: seen.text for seen in whole.seen})
    assert world.wait_used(name, 2 * CALLERS) == 2 * tokens, "every token is billed, and none twice"
    assert {replica.replica_id for replica in world.wait_ready(chat, 2).replicas} == before
    world.check_books(chat.job_id)


class Load:
    """A few callers that send requests all the time, and all of their refusals."""

    def __init__(self, world: World, callers: int = 3) -> None:
        self.answered, self.failed = 0, []  # type: int, list[Exception]
        self._client = world.client(world.key()[1])
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(callers)]

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                answer = self._client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=10, stream=True)
                assert [chunk.choices[0].finish_reason for chunk in answer][-1] is not None, "it was cut off"
            except Exception as error:
                self.failed.append(error)
            self.answered += 1

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)


def test_a_deploy_and_its_way_back_fail_no_request(world: World, chat: EndpointView) -> None:
    changed = world.spec(
        MODEL, replicas={"min": 2, "max": 2}, scale={"in_flight": CALLERS * 2}, rollout={"step": "20s"}
    )
    changed["serve"]["limits"]["max_tokens"] = 300

    def versions() -> dict[int, tuple[str, int]]:
        found = world.souk.endpoint(chat.endpoint_id).versions
        return {version.number: (version.state, version.share) for version in found}

    with Load(world) as load:
        world.souk.deploy(chat.endpoint_id, changed)
        wait_for("the new version to answer", lambda: versions()[2] == ("live", 100), REPLACED_SECONDS)
        assert versions()[1] == ("live", 0), "the way back is open"
        world.souk.rollback(chat.endpoint_id)
        wait_for("the old version to answer", lambda: versions()[1] == ("live", 100), REPLACED_SECONDS)
        assert versions()[2][0] == "rolled_back"
        asked = load.answered
        wait_for("more answers", lambda: load.answered > asked + 20, REPLACED_SECONDS)
    assert load.failed == []
    world.wait_ready(chat, 2)


def test_a_model_falls_asleep_and_a_request_wakes_it(world: World) -> None:
    # Awake for long enough to be seen so, on a computer that has much else to do.
    scale = {"idle": "20s", "wake": "2m"}
    asleep = world.serve(world.spec("tiny-sleeper", replicas={"min": 0, "max": 1}, scale=scale), ready=0)
    try:
        _fall_asleep_and_wake(world, asleep)
    except MarketError as error:
        error.add_note(f"it was waiting for this: {world.souk.endpoint(asleep.endpoint_id)}")
        raise
    finally:  # its name is free for another try
        world.souk.cancel(asleep.job_id)
    wait_for("it to end", lambda: world.souk.job(asleep.job_id).state == "cancelled", REPLACED_SECONDS)


def _fall_asleep_and_wake(world: World, asleep: EndpointView) -> None:
    wait_for("it to sleep", lambda: world.souk.endpoint(asleep.endpoint_id).state == "asleep", REPLACED_SECONDS)
    client = world.client(world.key()[1])
    answer = client.chat.completions.create(model="tiny-sleeper", messages=HELLO, max_tokens=5)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    # The caller's answer arrives before the gateway's next sync reports the replica to the marketplace.
    wait_for("it to be ready", lambda: world.souk.endpoint(asleep.endpoint_id).state == "ready", SOON_SECONDS)
    wait_for("it to sleep", lambda: world.souk.endpoint(asleep.endpoint_id).state == "asleep", REPLACED_SECONDS)


def test_at_the_end_all_is_billed_and_no_node_ever_opened_a_port(world: World, chat: EndpointView) -> None:
    for name in NODES:
        assert world.rack.listening(name) == []
    world.souk.cancel(chat.job_id)
    wait_for("it to end", lambda: world.souk.job(chat.job_id).state == "cancelled", REPLACED_SECONDS)
    bill = world.check_books(chat.job_id)["bill"]
    assert bill["is_final"] is True
    lines = bill["lines"]
    assert len({line["lease_id"] for line in lines}) == len(lines) >= 3
    assert sum(line["charge_usd_micros"] for line in lines) == bill["total_usd_micros"] > 0
