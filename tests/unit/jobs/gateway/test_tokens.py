"""The count: the engine's word, as far as what was seen allows."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.engines import tokens
from jobs.gateway.engines.chunks import ReceivedOutput
from jobs.gateway.engines.tokens import PromptSize, Ratio, count_stream, count_whole, measure_prompt
from tests.unit.jobs.gateway.inference_requests import make_request

ANY_TIME = settings(deadline=None)  # the machine may be slow

LIES = st.one_of(st.none(), st.integers(-10, 1 << 70), st.booleans(), st.text(max_size=3), st.floats(allow_nan=True))
USAGES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": LIES,
        "completion_tokens": LIES,
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": LIES}),
    },
)


@ANY_TIME
@given(USAGES, st.integers(0, 5000), st.integers(0, 50_000), st.integers(0, 4096), st.integers(0, 100_000))
def test_no_engine_makes_the_count_more_than_can_be(usage, chunks, text_bytes, max_tokens, prompt_bytes):
    size = PromptSize(prompt_bytes, 1)
    count = count_stream(size, ReceivedOutput(chunks, text_bytes, usage=usage), Ratio(), max_tokens=max_tokens)
    assert 0 <= count.output <= min(max_tokens, text_bytes + tokens.UNSEEN_TOKENS)
    assert 0 <= count.cached <= count.input <= max(size.tokens_max, 2 * prompt_bytes)


@ANY_TIME
@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), USAGES, st.integers(0, 4096))
def test_nor_for_an_answer_in_one_piece(texts, usage, max_tokens):
    answer: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}} for text in texts]}
    count = count_whole(
        make_request(n=len(texts)), PromptSize(100, 1), answer | {"usage": usage}, Ratio(), max_tokens=max_tokens
    )
    most = sum(len(text.encode(errors="replace")) + len("assistant") + tokens.UNSEEN_TOKENS for text in texts)
    assert 0 <= count.output <= min(max_tokens, most)


def test_an_honest_engine_is_believed_to_the_token():
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    count = count_stream(PromptSize(30, 1), ReceivedOutput(4, 20, usage=usage), Ratio(), max_tokens=10)
    assert (count.input, count.output, count.cached, count.by) == (9, 4, 5, "engine")


def test_a_stream_that_broke_off_counts_its_chunks_but_never_more_than_its_bytes():
    assert count_stream(PromptSize(40), ReceivedOutput(7, 40), Ratio(), max_tokens=100).output == 7
    assert count_stream(PromptSize(40), ReceivedOutput(7, 5), Ratio(), max_tokens=100).output == 5
    assert count_stream(PromptSize(40), ReceivedOutput(7, 40), Ratio(), max_tokens=6).output == 6


def test_the_ratio_is_learnt_from_whole_counts_and_not_from_lies():
    ratio = Ratio()
    for _ in range(200):
        count_stream(
            PromptSize(600, 1),
            ReceivedOutput(1, 1, usage={"prompt_tokens": 200, "completion_tokens": 1}),
            ratio,
            max_tokens=9,
        )
    assert abs(ratio.estimate(PromptSize(600)) - 200) <= 1
    before = ratio.value
    lie = {"prompt_tokens": 10**9, "completion_tokens": 1}
    assert count_stream(PromptSize(600, 1), ReceivedOutput(1, 1, usage=lie), ratio, max_tokens=9).by == "capped"
    assert ratio.value == before


def test_a_prompt_is_measured_whatever_its_form():
    parts = [{"type": "text", "text": "äb"}, {"type": "image_url", "image_url": {}}]
    size = measure_prompt(
        make_request(messages=[{"role": "user", "content": parts}, {"role": "user", "content": "xyz"}])
    )
    assert (size.text_bytes, size.messages, size.parts) == (6, 2, 1)
    assert measure_prompt(make_request("completion", prompt=[1, 2, 3])).tokens == 3
    assert measure_prompt(make_request("embedding", input=["ab", "cde"])).text_bytes >= 5
    assert measure_prompt(make_request("embedding", input=[[1, 2], [3]])).tokens >= 3
    assert measure_prompt(make_request(tools=[{"type": "function"}])).text_bytes > 20


def test_embeddings_write_nothing():
    answer = {"data": [{}], "usage": {"prompt_tokens": 3, "completion_tokens": 99}}
    count = count_whole(make_request("embedding"), PromptSize(9), answer, Ratio(), max_tokens=4096)
    assert (count.input, count.output) == (3, 0)


def test_what_a_message_holds_beside_its_text_counts_too():
    call = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "image_url"}, "no part"]},
        {"role": "assistant", "content": None, "tool_calls": call},
        "no message",
    ]
    size = measure_prompt(make_request(messages=messages, tools=call))
    assert (size.messages, size.parts) == (3, 2)
    assert size.text_bytes > 3 + len("function") * 2


def test_a_prompt_of_tokens_is_bounded_by_their_number():
    size = measure_prompt(make_request("completion", prompt=[5, 6, 7]))
    assert size.tokens_max == 3 + tokens.UNSEEN_TOKENS
    assert measure_prompt(make_request("completion", prompt={"no": "prompt"})) == PromptSize(0)


def test_usage_names_cached_tokens_only_where_there_are_any():
    plain = tokens.usage_object(make_request(), tokens.Count(5, 2))
    assert plain == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    cached = tokens.usage_object(make_request("embedding"), tokens.Count(5, 0, 4))
    assert cached == {"prompt_tokens": 5, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
