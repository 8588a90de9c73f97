"""The fake engine does what its users build on: steady text, counts, and the faults that a test orders."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.engine import EngineChild, Model, asks, tokens

HELLO = [{"role": "user", "content": "hello there"}]
SECONDS_MAX = 10.0


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineChild]:
    with EngineChild() as child:
        yield child


@pytest.fixture
def client(engine) -> Iterator[openai.OpenAI]:
    engine.heal()
    with openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0, timeout=SECONDS_MAX) as made:
        yield made


@settings(max_examples=50, deadline=None)
@given(text=st.text(max_size=40), at=st.integers(0, 20))
def test_an_answer_that_is_gone_on_with_is_the_uninterrupted_one(text, at):
    body = {"messages": [{"role": "user", "content": text}]}
    whole = asks.read("chat", body, Model()).choices[0]
    begun = "".join(whole.tokens[:at])
    messages = [*body["messages"], {"role": "assistant", "content": begun}]
    rest = asks.read("chat", {"messages": messages, "continue_final_message": True}, Model()).choices[0]
    assert begun + rest.text == whole.text and rest.finish_reason == whole.finish_reason


@settings(max_examples=50, deadline=None)
@given(text=st.text(max_size=40), at=st.integers(0, 15))
def test_so_is_a_completion(text, at):
    whole = asks.read("completion", {"prompt": text, "max_tokens": 16}, Model()).choices[0]
    begun = "".join(whole.tokens[:at])
    rest = asks.read("completion", {"prompt": text + begun, "max_tokens": 16 - at}, Model()).choices[0]
    assert begun + rest.text == whole.text and rest.finish_reason == whole.finish_reason


def test_a_stop_string_ends_the_text_before_it():
    assert tokens.cut(["one", " two", " three"], ["wo t"]) == (["one", " t"], True)
    assert tokens.cut(["one", " two"], ["four"]) == (["one", " two"], False)


def test_a_stream_says_what_the_whole_answer_says(client):
    whole = client.chat.completions.create(model="any", messages=HELLO)
    events = list(
        client.chat.completions.create(model="any", messages=HELLO, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(event.choices[0].delta.content or "" for event in events[:-1]) == whole.choices[0].message.content
    assert events[-1].usage == whole.usage and whole.usage.completion_tokens == 20


def test_a_caller_who_hangs_up_is_counted(engine, client):
    before = engine.stats()["cancelled"]
    engine.fail("hang", tokens=2, times=1)
    stream = client.chat.completions.create(model="any", messages=HELLO, stream=True)
    next(iter(stream))
    stream.close()
    until = time.monotonic() + SECONDS_MAX
    while engine.stats()["cancelled"] == before:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert engine.stats()["in_flight"] == 0


def test_a_fault_comes_as_often_as_it_was_asked_for(engine, client):
    engine.fail("status", status=503, times=1)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="any", messages=HELLO)
    assert client.chat.completions.create(model="any", messages=HELLO).choices[0].finish_reason == "stop"


def test_a_killed_engine_breaks_the_stream_after_the_configured_token(tmp_path):
    with EngineChild(uds=tmp_path / "serve.sock") as child:
        assert child.call("GET", "/v1/models")["data"][0]["id"] == "fake"
        child.fail("die", tokens=3)
        with pytest.raises((OSError, RuntimeError)):
            child.call("POST", "/v1/chat/completions", {"messages": HELLO})
        assert child.process.wait(SECONDS_MAX) == -9


def test_a_tool_is_called_with_arguments_of_its_schema(client):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    answer = client.chat.completions.create(model="any", messages=HELLO, tools=[tool], tool_choice="required")
    assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments) == {"city": "otter"}


def test_what_an_engine_cannot_it_passes_over_without_a_word():
    body = {"messages": HELLO, "n": 3, "response_format": {"type": "json_object"}}
    able = asks.read("chat", body, Model())
    unable = asks.read("chat", body, Model(capabilities=frozenset({"chat"})))
    assert len(able.choices) == 3 and json.loads(able.choices[0].text)["answer"]
    assert len(unable.choices) == 1 and not unable.choices[0].text.startswith("{")
