"""The agent counts the tokens that an engine names, without holding its answer."""

from __future__ import annotations

import json

import pytest

from provider_agent.tunnel.counting import TOKENS_MAX, USAGE_BYTES_MAX, Counts, UsageText

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


def count_pieces(answer: bytes, size: int) -> Counts:
    usage, counts = UsageText(), Counts()
    for start in range(0, len(answer), size):
        usage.add(answer[start : start + size])
    assert len(usage.text) <= USAGE_BYTES_MAX
    counts.add_usage(usage.text)
    return counts


@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 1000, 1_000_000])
@pytest.mark.parametrize("space", [None, (",", ":")])
def test_usage_is_found_however_much_follows_it(size: int, space: tuple[str, str] | None) -> None:
    """Commitments, or a prompt's log probabilities, for which a caller asks, stand behind it."""
    answer = {"choices": [{"text": "x" * 3000}], "usage": USAGE, "prompt_logprobs": [{"1": {"logprob": -1.5}}] * 5000}
    counts = count_pieces(json.dumps(answer, separators=space).encode(), size)
    assert (counts.input_tokens, counts.output_tokens, counts.without_usage) == (7, 11, 0)


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_of_a_stream_in_pieces_the_last_usage_counts(size: int) -> None:
    usages = [None, *({**USAGE, "completion_tokens": each} for each in range(1, 12))]
    events = [b"data: %b\n\n" % json.dumps({"choices": [], "usage": usage}).encode() for usage in usages]
    counts = count_pieces(b"".join(events) + b"data: [DONE]\n\n", size)
    assert (counts.input_tokens, counts.output_tokens, counts.without_usage) == (7, 11, 0)


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_an_answer_without_usage_has_none_in_pieces(size: int) -> None:
    assert count_pieces(b'{"usage": null}' * 500, size).without_usage == 1
