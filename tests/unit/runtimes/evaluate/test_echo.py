"""Log-likelihoods of given texts: only those of the text that was sent, whatever the endpoint's tokens are."""

from __future__ import annotations

from typing import Any

import pytest

from runtimes.evaluate.echo import NoScores, read_scores


def choice(*tokens: tuple[str, float | None, float | None], **changes: Any) -> dict[str, Any]:
    """A choice of tokens, each with its log-probability and the highest one at its place."""
    logprobs = {
        "tokens": [text for text, _, _ in tokens],
        "token_logprobs": [score for _, score, _ in tokens],
        "top_logprobs": [None if best is None else {"?": best} for _, _, best in tokens],
    }
    return {"text": "".join(text for text, _, _ in tokens), "logprobs": logprobs | changes}


WHOLE = choice(("One", None, None), (" two", -1.0, -1.0), (" three", -2.0, -0.5), (" more", -9.0, -9.0))
BEGUN = choice(("<s>", None, None), ("One", -0.5, -0.5), (" two", -1.0, -1.0), (" more", -9.0, -9.0))


def test_only_what_follows_the_context_is_scored_and_what_was_written_behind_it_is_not() -> None:
    assert read_scores(WHOLE, "One two three", 7) == (-2.0, False)
    assert read_scores(WHOLE, "One two three", 3) == (-3.0, False)
    assert read_scores(WHOLE, "One two", 3) == (-1.0, True)


def test_a_token_across_the_contexts_end_counts_whole() -> None:
    assert read_scores(WHOLE, "One two three", 5) == (-3.0, False)


def test_the_first_token_needs_something_before_it() -> None:
    with pytest.raises(NoScores, match="no log-probability of a text's first token"):
        read_scores(WHOLE, "One two", 0)
    assert read_scores(WHOLE, "One two", 0, may_skip_first=True) == (-1.0, True)
    assert read_scores(WHOLE, "One", 0, may_skip_first=True) == (0.0, True)
    assert read_scores(BEGUN, "One two", 0) == (-1.5, True)
    assert read_scores(BEGUN, "One two", 0, may_skip_first=True) == (-1.5, True)


def test_a_beginning_that_is_written_as_nothing_or_as_a_blank_is_no_part_of_the_text() -> None:
    silent = choice(("", None, None), ("One", -0.5, -0.5), (" two", -1.0, -1.0))
    assert read_scores(silent, "One two", 0) == (-1.5, True)
    blank = choice(("<s>", None, None), (" One", -0.5, -0.5), (" two", -1.0, -1.0))
    assert read_scores(blank, "One two", 0) == (-1.5, True)
    assert read_scores(blank, "One two", 3) == (-1.0, True)


def test_no_text_begins_inside_the_beginning() -> None:
    begun = choice(("<s>", None, None), ("s", -0.5, -0.5), (" s", -1.0, -1.0), (" more", -9.0, -9.0))
    assert read_scores(begun, "s s", 0) == (-1.5, True)
    assert read_scores(begun, "s", 0) == (-0.5, True)
    long = choice(("x" * 300, None, None), ("One", -0.5, -0.5))
    with pytest.raises(NoScores, match="other tokens"):
        read_scores(long, "One", 0)


def test_parts_of_a_character_count_with_it() -> None:
    parts = choice(("a", None, None), ("", -1.0, -1.0), ("東", -2.0, -2.0))
    assert read_scores(parts, "a東", 1) == (-3.0, True)


def test_tokens_that_do_not_add_up_are_placed_by_offsets_that_meet_both_ends() -> None:
    bad = choice(("a", None, None), ("bytes:\\xe6", -1.0, -1.0), ("bytes:\\x9d\\xb1", -2.0, -2.0), ("!", -7.0, -7.0))
    bad["text"] = "a東!"
    bad["logprobs"]["text_offset"] = [0, 1, 1, 2]
    assert read_scores(bad, "a東", 1) == (-3.0, True)
    for offsets in ([0, 1, 1, 3], [1, 1, 1, 2], [0, 2, 1, 2], [0, 1, 1], None, [0, 1, True, 2], "0112"):
        bad["logprobs"]["text_offset"] = offsets
        with pytest.raises(NoScores):
            read_scores(bad, "a東", 1)


def test_another_text_than_the_one_that_was_sent_has_no_scores() -> None:
    with pytest.raises(NoScores, match="other tokens"):
        read_scores(WHOLE, "One four", 3)
    offsets = choice(("One", None, None), (" two", -1.0, -1.0), text_offset=[0, 3])
    with pytest.raises(NoScores, match="other tokens"):
        read_scores(offsets, "One 2", 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": None}, "no list of tokens"),
        ({"tokens": ["One", 2, " three", " more"]}, "no list of tokens"),
        ({"token_logprobs": [None, -1.0]}, "not one of"),
        ({"top_logprobs": None}, "not one of"),
        ({"top_logprobs": [None] * 4}, "no top_logprobs"),
        ({"top_logprobs": [None, {}, {}, {}]}, "no top_logprobs"),
        ({"token_logprobs": [None, 0.5, -1.0, -1.0]}, "above 0"),
        ({"token_logprobs": [None, True, -1.0, -1.0]}, "no number"),
        ({"token_logprobs": [None, "-1", -1.0, -1.0]}, "no number"),
        ({"token_logprobs": [None, float("nan"), -1.0, -1.0]}, "no number"),
        ({"token_logprobs": [None, float("-inf"), -1.0, -1.0]}, "no number"),
        ({"token_logprobs": [None, -(10**400), -1.0, -1.0]}, "no number"),
        ({"top_logprobs": [None, {"?": -(10**400)}, {"?": -1.0}, {"?": -1.0}]}, "no number"),
        ({"token_logprobs": [None, None, -1.0, -1.0]}, "first token"),
    ],
)
def test_what_is_no_list_of_scores_is_named(changes: dict[str, Any], message: str) -> None:
    found = {"text": WHOLE["text"], "logprobs": WHOLE["logprobs"] | changes}
    with pytest.raises(NoScores, match=message):
        read_scores(found, "One two three", 3)


@pytest.mark.parametrize("bad", [None, [], {}, {"logprobs": None}, {"logprobs": []}])
def test_a_choice_without_logprobs_has_no_scores(bad: Any) -> None:
    with pytest.raises(NoScores, match="no logprobs"):
        read_scores(bad, "One two", 3)


def test_what_is_all_but_certain_is_no_more_than_certain() -> None:
    sure = choice(("One", None, None), (" two", 1e-6, 1e-6))
    assert read_scores(sure, "One two", 3) == (0.0, True)
