"""What is sent to an engine, and what is never."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.gateway.answering import continuing
from jobs.gateway.engines.upstream import Announced
from jobs.gateway.messages import EndpointLimits
from jobs.gateway.routing import capabilities
from runtimes.contract import Capability
from tests.unit.jobs.gateway.inference_requests import KEY, make_request

ALL = frozenset(map(str, Capability))


def engine(*lacks: Capability, context: int | None = None) -> Announced:
    return Announced(KEY, "some", ALL - set(lacks), context, {"served_as": "inner"})


def body_for(it, *lacks, context=None, commits=False):
    limits = it.endpoint.limits
    return capabilities.engine_body(it, engine(*lacks, context=context), limits, 10, commits=commits)


def test_what_means_nothing_is_taken_away_and_what_means_something_stays():
    it = make_request(
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        response_format={"type": "text"},
        logprobs=False,
        n=1,
        presence_penalty=0,
        frequency_penalty=0.0,
        user="u",
        metadata={"a": 1},
        store=True,
        stop=None,
        temperature=0,
        top_k=5,
    )
    body = body_for(it)
    assert set(body) == {"model", "messages", "temperature", "top_k", "max_tokens"}
    assert body["model"] == "inner" and [need for need, _ in capabilities.needs(it)] == [Capability.CHAT]


def test_no_tool_is_no_tool_also_for_an_engine_that_cannot_choose():
    tools = [{"type": "function", "function": {"name": "f"}}]
    it = make_request(tools=tools, tool_choice="none")
    assert "tools" not in body_for(it, Capability.TOOL_CHOICE)
    assert body_for(it)["tool_choice"] == "none"
    assert capabilities.can_answer(capabilities.needs(it), ALL - {Capability.TOOLS, Capability.TOOL_CHOICE})
    assert body_for(make_request(tools=tools, tool_choice="auto"), Capability.TOOL_CHOICE)["tools"] == tools


def test_a_limit_is_always_sent_and_fits_the_context():
    limits = EndpointLimits(max_tokens=4096)
    assert body_for(make_request(limits=limits))["max_tokens"] == 4096
    assert body_for(make_request(limits=limits, max_tokens=4096), context=512)["max_tokens"] < 512
    assert body_for(make_request(limits=limits, max_tokens=20), context=512)["max_tokens"] == 20
    new = body_for(make_request(limits=limits, max_completion_tokens=20))
    assert new["max_completion_tokens"] == 20 and "max_tokens" not in new


def test_an_answer_that_is_checked_is_drawn_by_a_seed_that_the_engine_did_not_choose():
    it = make_request(verify=5)
    body = body_for(it, commits=True)
    assert body["souk_commit"] is True and body == body_for(it, commits=True) and body["seed"] >= 0
    assert body_for(make_request(seed=3), commits=True)["seed"] == 3
    assert "souk_commit" not in body_for(it, Capability.COMMITS, commits=True)


@pytest.mark.parametrize("logprobs", [0, 1, True])
def test_a_completion_that_asks_for_log_probabilities_asks_also_with_none(logprobs):
    assert (Capability.LOGPROBS, "logprobs") in capabilities.needs(make_request("completion", logprobs=logprobs))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": {"message": "maximum context length is 5", "code": null}}', "context_length_exceeded"),
        (b'{"error": {"message": "bad stop", "param": "stop"}}', "engine_refused"),
        (b'{"detail": [{"loc": ["body"], "msg": "no"}]}', "engine_refused"),
        (b'{"object": "error", "message": "no"}', "engine_refused"),
        (b"<html>", "engine_refused"),
        (b"[" * 5000, "engine_refused"),
        (b"", "engine_refused"),
    ],
)
def test_an_engines_refusal_comes_in_openais_form(body, code):
    error = capabilities.from_engine(422, body)
    assert (error.status, error.code, error.type) == (400, code, "invalid_request_error")
    assert error.message and len(error.message) <= capabilities.MESSAGE_CHARS_MAX and json.loads(error.body())


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{}]},
        {"logprobs": True},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"presence_penalty": 1},
        {"stream": False},
    ],
)
def test_an_answer_that_depends_on_more_than_its_text_stays_where_it_is(body):
    assert continuing.can_move(make_request(stream=True, temperature=1, seed=3, stop=["x"], tools=[], logprobs=False))
    assert not continuing.can_move(make_request(**({"stream": True} | body)))


def test_the_text_so_far_becomes_the_beginning_of_the_answer():
    it = make_request(stream=True, max_tokens=20)
    moved: Any = continuing.continued(it, body_for(it), "So far", 5)
    assert moved["messages"][-1] == {"role": "assistant", "content": "So far"} and moved["max_tokens"] == 15
    assert moved["continue_final_message"] and not moved["add_generation_prompt"]
    assert len(it.body["messages"]) == 1
    prefilled = [*it.body["messages"], {"role": "assistant", "content": "He said: "}]
    it = make_request(stream=True, messages=prefilled, continue_final_message=True)
    moved = continuing.continued(it, body_for(it), "so", 1)
    assert moved["messages"][-1]["content"] == "He said: so"
    it = make_request("completion", stream=True, prompt=["Once"], max_tokens=5)
    moved = continuing.continued(it, body_for(it), " upon", 1)
    assert moved["prompt"] == "Once upon"
    assert continuing.continued(it, body_for(it), " upon a time there was", 5) is None
