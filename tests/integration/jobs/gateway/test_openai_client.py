"""The official client, unmodified, through the real gateway and the real tunnel, to engines on Unix sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from runtimes.contract import Capability
from runtimes.serve.config import parse_config
from runtimes.serve.engines import load_engine
from runtimes.serve.engines.base import Engine
from runtimes.serve.model import Model
from tests.fakes.control import grant
from tests.fakes.serving_stack import Replica, Stack
from tests.integration.jobs.gateway import conformance
from tests.integration.jobs.gateway.conformance import HELLO, IGNORED, Case

SECONDS_MAX = 20.0
TABLE = Path(__file__).parent / "conformance.md"
DOCS = Path(__file__).parents[4] / "docs/serving.md"
NAMES = ("vllm", "souk", "transformers")
DECLARED = "vllm, declared"
TEXT = {kind: conformance.KINDS[kind] for kind in ("chat", "completion")}
VECTORS = {"embedding": conformance.EMBEDDINGS}
BROKE, OUT, REVOKED, SLOW = (f"sk-souk-{name * 6}" for name in ("Broke", "OutOf", "Gone1", "Slow1"))


def declared(engine: Engine, folder: Path) -> frozenset[Capability]:
    """What an engine of ours declares with a model that has every feature."""
    template = folder / "template.jinja"
    template.write_text("{{ messages }}{{ tools }}")
    model = Model(folder, {"model_type": "qwen3"}, "", "", 0, template)
    return engine.capabilities(model, parse_config({"model": {"folder": "model"}, "served_as": "any"}))


class World:
    """Engines that can what the real ones declare, one that can all, and one for embeddings, behind one gateway."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        small = {"context": 200, "max_tokens": 100, "in_flight": 100, "body_bytes": 100_000}
        stack.add_endpoint("small", limits=small)
        stack.add_endpoint("vectors", task="embed")
        stack.add_endpoint("empty", limits={"wake_seconds": 1})
        stack.add_endpoint("closed", closed="it was stopped by its owner")
        for name in NAMES:
            stack.add_endpoint(name)
        named = {row.model: row for row in stack.endpoints}
        self.able = stack.start_engine()
        self.declared = {
            name: stack.start_engine(
                of=named[name], called=name, capabilities=sorted(declared(load_engine(name), stack.folder))
            )
            for name in NAMES
        }
        self.small = stack.start_engine(of=named["small"], called="vllm", context=200)
        self.vectors = stack.start_engine(of=named["vectors"], called="embed", capabilities=[Capability.EMBEDDINGS])
        stack.control.grant(
            *stack.grants,
            grant(BROKE, budget_usd_micros=0),
            grant(OUT, endpoint_ids=[named["souk"].endpoint_id]),
            grant(REVOKED, refused="revoked"),
            grant(SLOW, requests_per_minute=1),
        )
        stack.start_gateway()
        for each in stack.replicas:
            stack.start_provider(each)
        stack.wait_ready(len(stack.replicas))

    def client(self, key: str = "", **options: object) -> openai.OpenAI:
        given = {"max_retries": 0, "timeout": SECONDS_MAX} | options
        return openai.OpenAI(base_url=self.stack.base_url, api_key=key or self.stack.key, **given)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with Stack(tmp_path_factory.mktemp("openai")) as stack:
        yield World(stack)


@pytest.fixture
def client(world) -> Iterator[openai.OpenAI]:
    for each in world.stack.replicas:
        each.engine.heal()
    with world.client() as made:
        yield made


def until(condition) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- what is answered


def test_a_stream_says_what_the_whole_answer_says_and_both_are_counted_alike(client):
    whole = client.chat.completions.create(model="fake", messages=HELLO)
    events = list(
        client.chat.completions.create(
            model="fake", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    streamed = "".join(choice.delta.content or "" for event in events for choice in event.choices)
    assert streamed == whole.choices[0].message.content
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens == 20
    assert {event.model for event in events} == {"fake"} and len({event.id for event in events}) == 1


def test_a_request_has_the_callers_id_and_one_of_its_own(client):
    answer = client.chat.completions.with_raw_response.create(
        model="fake", messages=HELLO, extra_headers={"x-client-request-id": "mine-17"}
    )
    assert answer.headers["x-client-request-id"] == "mine-17"
    assert len(answer.request_id) == 36


def test_the_models_are_listed_and_found_one_by_one(client):
    assert {model.id for model in client.models.list()} >= {"fake", "vllm", "small", "vectors"}
    assert client.models.retrieve("small").id == "small"
    with pytest.raises(openai.NotFoundError) as found:
        client.models.retrieve("nobodys")
    assert found.value.code == "model_not_found"


def test_embeddings_come_in_either_form_and_are_the_same(client):
    packed = client.embeddings.create(model="vectors", input=["one", "two"])  # the client requests base64
    plain = client.embeddings.create(model="vectors", input=["one", "two"], encoding_format="float")
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)


def test_a_tool_can_be_called_in_a_stream(client):
    parts = client.chat.completions.create(
        model="fake", messages=HELLO, tools=[conformance.TOOL], tool_choice="required", stream=True
    )
    calls = [call for part in parts if part.choices for call in part.choices[0].delta.tool_calls or ()]
    assert calls[0].function.name == "weather"
    assert json.loads("".join(call.function.arguments for call in calls)) == {"city": "otter", "count": 7}


def test_a_caller_who_hangs_up_stops_the_engine(world, client):
    before = world.able.engine.stats()["cancelled"]
    world.able.engine.fail("hang", tokens=3, times=1)
    stream = client.chat.completions.create(model="fake", messages=HELLO, stream=True)
    next(iter(stream))
    stream.close()
    until(lambda: world.able.engine.stats()["cancelled"] == before + 1)
    until(lambda: world.stack.control.usage() and world.stack.control.usage()[-1].status == "cancelled")


def test_a_timeout_of_the_callers_stops_the_engine_too(world, client):
    before = world.able.engine.stats()["cancelled"]
    world.able.engine.fail("slow", ms=60_000, times=1)
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=4).chat.completions.create(model="fake", messages=HELLO)
    until(lambda: world.able.engine.stats()["cancelled"] == before + 1)


# --- what is refused


@pytest.mark.parametrize(
    ("model", "fields", "error", "code"),
    [
        ("nobodys", {}, openai.NotFoundError, "model_not_found"),
        ("mallory/secret", {}, openai.NotFoundError, "model_not_found"),
        ("small", {"messages": [{"role": "user", "content": "word " * 500}]}, openai.BadRequestError,
         "context_length_exceeded"),
        ("fake", {"max_tokens": 1_000_000}, openai.BadRequestError, None),
        ("fake", {"temperature": 9}, openai.BadRequestError, None),
        ("fake", {"messages": []}, openai.BadRequestError, None),
        ("small", {"messages": [{"role": "user", "content": "x" * 200_000}]}, openai.APIStatusError, None),
        ("closed", {}, openai.InternalServerError, "model_unavailable"),
        ("empty", {}, openai.InternalServerError, None),
        ("vectors", {}, openai.BadRequestError, None),
    ],
)  # fmt: skip
def test_bad_input_is_an_error_of_the_clients_own_kind(client, model, fields, error, code):
    with pytest.raises(error) as raised:
        client.chat.completions.create(model=model, **({"messages": HELLO} | fields))
    assert set(raised.value.body) == {"message", "type", "param", "code"}
    if code is not None:
        assert raised.value.code == code
    assert "Traceback" not in str(raised.value) and "/home" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "error", "code"),
    [
        ("sk-souk-" + "Mallory" * 5, openai.AuthenticationError, "invalid_api_key"),
        (REVOKED, openai.AuthenticationError, None),
        (BROKE, openai.RateLimitError, "insufficient_quota"),
        (OUT, openai.NotFoundError, "model_not_found"),
    ],
)
def test_who_may_not_is_refused_with_the_reason(world, key, error, code):
    with world.client(key) as mallory, pytest.raises(error) as raised:
        mallory.chat.completions.create(model="fake", messages=HELLO)
    if code is not None:
        assert raised.value.code == code


def test_the_clients_own_retry_heeds_how_long_it_should_wait(world):
    with world.client(SLOW) as alice:
        alice.chat.completions.create(model="fake", messages=HELLO)
        with pytest.raises(openai.RateLimitError) as raised:
            alice.chat.completions.create(model="fake", messages=HELLO)
    assert 0 < float(raised.value.response.headers["retry-after"]) <= 60


def test_an_engine_that_fails_once_is_not_noticed(world, client):
    world.able.engine.fail("status", status=500, times=1)
    assert client.chat.completions.create(model="fake", messages=HELLO).choices[0].finish_reason == "stop"


def test_an_engines_page_of_html_reaches_nobody(world, client):
    world.declared["transformers"].engine.fail("page", status=502)
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(model="transformers", messages=HELLO)
    assert "10.0.0.7" not in str(raised.value) and "html" not in str(raised.value)


def test_a_stream_whose_engine_dies_ends_with_an_error_where_nobody_goes_on(world, client):
    world.declared["souk"].engine.fail("cut", tokens=4)
    seen = []
    with pytest.raises(openai.APIError) as raised:
        for event in client.chat.completions.create(model="souk", messages=HELLO, stream=True, logprobs=True):
            seen.append(event)
    assert len(seen) >= 4 and raised.value.code == "replica_lost"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "fake", "messages": NaN}', b"[" * 5000, b"\xff\xfe"])
def test_what_is_no_json_is_refused_in_openais_form(world, body):
    headers = {"authorization": f"Bearer {world.stack.key}", "content-type": "application/json"}
    answer = httpx.post(f"{world.stack.base_url}/chat/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# --- parameter by parameter


def test_engines_declare_every_parameter_and_vllms_column_says_what_becomes_of_each(world, client):
    found = {name: _table(world.declared[name], client, name, TEXT) for name in NAMES}
    found["embed"] = _table(world.vectors, client, "vectors", VECTORS)
    ignored = [f"{engine}: {name}" for engine, rows in found.items() for name, row in rows.items() if row == IGNORED]
    assert ignored == []
    assert conformance.read_markdown(TABLE.read_text())[DECLARED] == found["vllm"]  # the others': test_real_engines.py
    assert not DOCS.exists() or TABLE.read_text() in DOCS.read_text()


def test_an_engine_that_can_everything_does_everything(world, client):
    found = _table(world.able, client, "fake", TEXT)
    refused = {name: row for name, row in found.items() if row not in {"passed", "passed on"}}
    assert refused == {"chat: functions": "refused unsupported_parameter"}


def _table(of: Replica, client: openai.OpenAI, model: str, kinds: dict[str, tuple[Case, ...]]) -> dict[str, str]:
    def saw(parameter: str) -> object:
        return of.engine.requests()[-1]["body"].get(parameter)

    return conformance.table(client, model, saw, kinds)
