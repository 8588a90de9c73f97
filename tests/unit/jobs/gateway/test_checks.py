"""A body that is not what OpenAI's form says is refused, and the refusal names the parameter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.gateway.errors import ApiError
from jobs.gateway.frontend.validation import DEPTH_MAX, ValidatedBody, read_json, read_model, validate_body
from jobs.gateway.inference_request import Kind
from jobs.gateway.messages import EndpointLimits
from tests.unit.jobs.gateway.stage import chat, endpoint_for

ENDPOINT = endpoint_for("tiny", limits=EndpointLimits(max_tokens=100))


def validated(body: dict[str, Any], kind: Kind = "chat") -> ValidatedBody:
    return validate_body(kind, body, ENDPOINT, len(json.dumps(body)))


def refused(raw: bytes) -> ApiError:
    with pytest.raises(ApiError) as error:
        read_json(raw)
    assert error.value.status == 400
    return error.value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}",
        b'{"model":"a","model":"b"}',
        b'{"messages":[{"role":"user","role":"system"}]}',
        b'{"a":"\\ud800"}',
        b'{"\\uDC00":1}',
    ],
    ids=lambda raw: raw[:12].decode("latin-1"),
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    assert refused(raw).code == "invalid_json"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_what_is_a_json_object_is_read_as_it_is(value: Any) -> None:
    assert read_json(json.dumps({"a": value}).encode()) == {"a": value}
    assert read_json(json.dumps({"a": value}, ensure_ascii=False).encode()) == {"a": value}


@given(st.binary(max_size=200))
def test_no_bytes_bring_anything_but_an_object_or_a_refusal(raw: bytes) -> None:
    try:
        assert isinstance(read_json(raw), dict)
    except ApiError as error:
        assert error.status == 400


@pytest.mark.parametrize("model", [None, 5, "", "x" * 201, ["a"]])
def test_a_model_must_be_named(model: Any) -> None:
    with pytest.raises(ApiError) as error:
        read_model({"model": model})
    assert error.value.param == "model"


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        ("chat", {"messages": None}, "messages"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": "Hello"}, "messages"),
        ("chat", {"messages": [5]}, "messages[0]"),
        ("chat", {"messages": [{"content": "x"}]}, "messages[0].role"),
        ("chat", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("chat", {"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content"),
        ("chat", {"stream": "yes"}, "stream"),
        ("chat", {"n": 0}, "n"),
        ("chat", {"n": True}, "n"),
        ("chat", {"n": 1.5}, "n"),
        ("chat", {"n": 129}, "n"),
        ("chat", {"max_tokens": -1}, "max_tokens"),
        ("chat", {"max_tokens": "5"}, "max_tokens"),
        ("chat", {"max_tokens": 101}, "max_tokens"),
        ("chat", {"max_tokens": None, "max_completion_tokens": 101}, "max_completion_tokens"),
        ("chat", {"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ("chat", {"temperature": 2.1}, "temperature"),
        ("chat", {"temperature": "hot"}, "temperature"),
        ("chat", {"top_p": -1}, "top_p"),
        ("chat", {"stop": 5}, "stop"),
        ("chat", {"stop": ["a", 5]}, "stop"),
        ("chat", {"stop": ["a"] * 17}, "stop"),
        ("chat", {"stream_options": []}, "stream_options"),
        ("chat", {"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options"),
        ("chat", {"stream_options": {"include_usage": True}}, "stream_options"),
        ("completion", {"prompt": None}, "prompt"),
        ("completion", {"prompt": []}, "prompt"),
        ("completion", {"prompt": ["a", 5]}, "prompt"),
        ("completion", {"prompt": "a", "best_of": 0}, "best_of"),
        ("embedding", {"input": ""}, "input"),
        ("embedding", {"input": []}, "input"),
        ("embedding", {"input": ["a", ""]}, "input"),
        ("embedding", {"input": [-1]}, "input"),
        ("embedding", {"input": ["a"] * 2049}, "input"),
        ("embedding", {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("embedding", {"input": "a", "dimensions": 0}, "dimensions"),
    ],
)
def test_each_refusal_names_its_parameter(kind: Kind, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as error:
        validated(chat() | fields, kind)
    assert (error.value.status, error.value.param, error.value.code) == (400, param, "invalid_value")


def test_fields_that_the_gateway_does_not_know_pass_through() -> None:
    assert validated(chat(guided_regex="a+", extra={"deep": [1]})).body["extra"] == {"deep": [1]}


def test_the_engine_is_always_sent_how_much_it_may_write() -> None:
    body = validated({name: value for name, value in chat().items() if name != "max_tokens"}).body
    assert body["max_tokens"] == 100
    assert validated(chat(max_tokens=None, max_completion_tokens=7)).body == chat(max_tokens=7)
    assert validated(chat(n=3)).output_tokens_max == 15
    assert validated({"prompt": ["a", "b"], "max_tokens": 5, "n": 2}, "completion").output_tokens_max == 20


def test_token_ids_are_counted_and_text_is_estimated() -> None:
    assert validated({"input": [[1, 2, 3], [4]]}, "embedding").input_tokens == 4
    assert validated({"prompt": [1, 2, 3]}, "completion").input_tokens == 3
    assert validated({"input": "x" * 3000}, "embedding").input_tokens > 1000
