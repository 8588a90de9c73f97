"""One request to a model, and the digest by which its answer is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

VERSION = 1  # of how requests are computed: another one makes every kept answer another request's
SCORE_DECIMALS = 3  # log-likelihoods are rounded to this before anything is derived from them

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
