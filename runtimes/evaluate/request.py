"""One request to a model, and the digest by which its answer is kept."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

VERSION = 2  # of how requests are computed: another one makes every kept answer another request's
SCORE_DECIMALS = 3  # log-likelihoods are rounded to this before anything is derived from them
VALUE_MAX = 1e15  # of a score or a number: beyond it, rounding to SCORE_DECIMALS says nothing
TEXT_CHARACTERS_MAX = 128 * 1024  # of a written text: TOKENS_MAX tokens of 32 characters
PROJECTED = 32  # numbers that are kept of a sample's hidden states

LIKELIHOOD = "loglikelihood"  # (context, continuation) -> [score, whether it is what greedy decoding writes]
ROLLING = "loglikelihood_rolling"  # (text,) -> score
GENERATE = "generate_until"  # (context, until, tokens_max) -> text
EMBED = "embed"  # (text,) -> numbers

Answer = Any  # as JSON


@dataclass(frozen=True)
class Request:
    """What is asked, without the model: the same of every model that is compared."""

    kind: str
    arguments: tuple[Any, ...]

    def digest(self, model: str) -> str:
        """SHA-256, in hex, of the request to the model whose digest is `model`."""
        body = [VERSION, model, self.kind, *self.arguments]
        return hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()


def rounded(score: float) -> float:
    """A score with SCORE_DECIMALS decimals; never -0.0, which is written differently."""
    return round(score, SCORE_DECIMALS) + 0.0


def is_answer(kind: str, answer: Answer) -> bool:
    """Whether a request of this kind can have the answer: its shape, and numbers that are finite and within bounds."""
    if kind == LIKELIHOOD:
        return isinstance(answer, list) and len(answer) == 2 and _is_score(answer[0]) and isinstance(answer[1], bool)
    if kind == ROLLING:
        return _is_score(answer)
    if kind == GENERATE:
        return isinstance(answer, str) and len(answer) <= TEXT_CHARACTERS_MAX
    return isinstance(answer, list) and len(answer) == PROJECTED and all(_is_number(each) for each in answer)


def _is_score(value: object) -> bool:
    """A log-likelihood is never above 0."""
    return _is_number(value) and value <= 0  # type: ignore[operator]


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and abs(value) <= VALUE_MAX
