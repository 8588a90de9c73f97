"""Log-likelihoods of a given text, as /completions returns them with `echo` and `logprobs`.

The endpoint's tokens are matched with the text that was sent, by their own characters: what is not that text is no
score of it. Only where tokens hold parts of characters, so that they do not add up to the text, the offsets that came
count, if they meet both ends of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

PREFIX_CHARACTERS_MAX = 200  # of tokens that the endpoint puts before the text, such as a beginning
ABOVE_ZERO_MAX = 1e-4  # the log-probability of what is all but certain may be computed as a little more than 0

Span = tuple[int, int]  # begin and end of a token, in characters of the text that was sent


class NoScores(ValueError):
    """The answer has no log-likelihoods of the text; the message says what is in their place."""


@dataclass(frozen=True)
class Token:
    """One token of the text."""

    begin: int
    end: int
    score: float | None  # None: nothing came before it
    is_likeliest: bool


def read_scores(choice: object, text: str, start: int, *, may_skip_first: bool = False) -> tuple[float, bool]:
    """The log-likelihood of `text[start:]` after `text[:start]`, and whether greedy decoding writes it.

    A token that holds the last characters before `start` and the first ones after it counts whole. `may_skip_first`:
    the text's first token is left out where it has no log-probability. Raises NoScores.
    """
    tokens = [token for token in _read_tokens(choice, text) if token.begin >= start or token.end > start]
    if may_skip_first and tokens and tokens[0].begin <= 0 and tokens[0].score is None:
        tokens = tokens[1:]
    scores = [token.score for token in tokens if token.score is not None]
    if len(scores) != len(tokens):
        raise NoScores("no log-probability of a text's first token")
    return math.fsum(scores), all(token.is_likeliest for token in tokens)


def _read_tokens(choice: object, text: str) -> list[Token]:
    """The tokens of the text alone: neither what was put before it nor what was written after it."""
    logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(logprobs, dict):
        raise NoScores("no logprobs")
    texts, chances, tops = (logprobs.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise NoScores("no list of tokens")
    if not isinstance(chances, list) or not isinstance(tops, list) or not len(texts) == len(chances) == len(tops):
        raise NoScores("not one of token_logprobs and of top_logprobs a token")
    spans = _joined(texts, text) or _by_offsets(logprobs.get("text_offset"), choice.get("text"), text)
    found = []
    for number, ((begin, end), chance, top) in enumerate(zip(spans, chances, tops, strict=False)):
        is_prefix = end <= 0 if number == 0 else end < 0 or begin < end <= 0
        if is_prefix or begin >= len(text):
            continue
        score = _score(chance)
        found.append(Token(begin, end, score, score is not None and score >= _likeliest(top)))
    if not found or found[0].begin > 0 or found[-1].end != len(text):
        raise NoScores("other tokens than those of the text")
    return found


def _joined(texts: list[str], text: str) -> list[Span] | None:
    """Each token's place in the text, where they add up to it; places before it are negative."""
    at = _place("".join(texts), texts, text)
    if at is None:
        return None
    spans, end = [], -at
    for each in texts:
        begin, end = end, end + len(each)
        spans.append((begin, end))
    return spans


def _place(joined: str, texts: list[str], text: str) -> int | None:
    """Where the text begins: where a token does, or behind the blank that some tokenizers put before every text."""
    begin = 0
    for each in texts:
        if begin > PREFIX_CHARACTERS_MAX:
            break
        for at in (begin, begin + 1) if each[:1] == " " else (begin,):
            if joined.startswith(text, at):
                return at
        begin += len(each)
    return None


def _by_offsets(offsets: object, echoed: object, text: str) -> list[Span]:
    """Each token's place by the endpoint's own offsets, which begin with the text and have its end among them."""
    if not isinstance(echoed, str) or not echoed.startswith(text):
        raise NoScores("other tokens than those of the text")
    if not isinstance(offsets, list) or not all(type(each) is int for each in offsets):
        raise NoScores("other tokens than those of the text, and no offsets")
    if offsets != sorted(offsets) or offsets[:1] != [0] or len(text) not in offsets:
        raise NoScores("offsets that do not meet the ends of the text")
    return list(zip(offsets, [*offsets[1:], len(echoed)], strict=True))


def _score(value: Any) -> float | None:
    if value is None:
        return None
    try:
        score = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # JSON bounds no whole number
        score = math.nan
    if not math.isfinite(score):
        raise NoScores("a log-probability that is no number")
    if score > ABOVE_ZERO_MAX:
        raise NoScores("a log-probability above 0")
    return min(0.0, score)


def _likeliest(top: object) -> float:
    """The highest log-probability at a place; raises NoScores where none is named, which greedy decoding needs."""
    values = [_score(each) for each in top.values()] if isinstance(top, dict) else []
    known = [each for each in values if each is not None]
    if not known:
        raise NoScores("no top_logprobs, by which greedy decoding is known")
    return max(known)
