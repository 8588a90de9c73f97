"""The agent counts the tokens that an engine names, without holding its answer."""

from __future__ import annotations

import json

import pytest

from provider_agent.tunnel.counting import TOKENS_MAX, Counts

USAGE = {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens": 11, "total_tokens": 18}


@pytest.mark.parametrize("space", [None, (",", ":")])
def test_usage_is_read_out_of_the_end_of_an_answer(space: tuple[str, str] | None) -> None:
    counts = Counts()
    counts.add_usage(b"x" * 100 + json.dumps({"choices": [], "usage": USAGE, "n": None}, separators=space).encode())
    assert (counts.input_tokens, counts.output_tokens, counts.without_usage) == (7, 11, 0)


def test_the_last_usage_counts_where_a_stream_names_one_a_piece() -> None:
    counts = Counts()
    pieces = [{"usage": None}, {"usage": {**USAGE, "completion_tokens": 1}}, {"usage": USAGE}]
    counts.add_usage(b"".join(b"data: %b\n\n" % json.dumps(piece).encode() for piece in pieces) + b"data: [DONE]\n\n")
    assert (counts.input_tokens, counts.output_tokens) == (7, 11)


def test_a_text_that_mentions_usage_is_not_taken_for_it() -> None:
    counts = Counts()
    text = json.dumps({"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000}})
    counts.add_usage(json.dumps({"choices": [{"text": text}]}).encode())
    assert (counts.input_tokens, counts.output_tokens, counts.without_usage) == (0, 0, 1)


def test_a_number_that_is_nonsense_counts_nothing() -> None:
    counts = Counts()
    counts.add_usage(b'"usage": {"prompt_tokens": %d, "completion_tokens": 5}' % (TOKENS_MAX + 1))
    assert (counts.input_tokens, counts.output_tokens) == (0, 5)
