"""Drawing tokens so that another replica can draw them again: each by one number that seed and position give.

A number u in [0, 1) comes from (seed, choice, position in the sequence); the token is the one at which the cumulated
probability, in the order of the vocabulary, passes u. So a verifier that has the seed and computes nearly the same
probabilities draws the same tokens, and a stream that goes on elsewhere goes on as it would have. It also makes the
drawing checkable, which TOPLOC's activations are not: `gap` measures by how much probability a token was missed. The
order of the vocabulary, not of probability, keeps that small between honest replicas: two tokens that are almost
equally likely do not change places.

The replica must not choose the seed: the gateway sets it if the caller did not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

TEMPERATURE_MAX: Final = 2.0
EDGE: Final = 0.02  # probability around top_p within which another replica may have cut one token earlier or later

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampling:
    """How the tokens of one request are drawn; a temperature of 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """For a commitment's binding; greedy is greedy whatever else the request has."""
        if self.temperature == 0:
            return {"temperature": 0.0}
        return {"temperature": float(self.temperature), "top_p": float(self.top_p), "seed": self.seed}


def draw(logits: Floats, sampling: Sampling, choice: int, position: int) -> int:
    """The token at `position` of the sequence, from the logits for it, [vocabulary]."""
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    probabilities = _probabilities(logits, sampling.temperature)
    if sampling.top_p < 1:
        order, total = _ordered(probabilities)
        kept = np.zeros_like(probabilities)
        chosen = order[: _cut(total, sampling.top_p)]
        kept[chosen] = probabilities[chosen]
        probabilities = kept
    total = np.cumsum(probabilities)
    token = int(np.searchsorted(total, number(sampling.seed, choice, position) * total[-1], side="right"))
    return min(token, int(np.flatnonzero(probabilities)[-1]))  # u * total may round up to the total itself


def gap(logits: Floats, sampling: Sampling, choice: int, position: int, token: int) -> float:
    """By how much probability `token` is not the one that these logits give: 0 where it is, at most 1."""
    if not 0 <= token < len(logits):
        return 1.0
    if sampling.temperature == 0:
        probabilities = _probabilities(logits, 1.0)
        return float(probabilities.max() - probabilities[token])
    probabilities = _probabilities(logits, sampling.temperature)
    target = number(sampling.seed, choice, position)
    if sampling.top_p >= 1:
        return _missed_by(probabilities, token, target)
    order, total = _ordered(probabilities)
    cut, best = _cut(total, sampling.top_p), 1.0
    for count in (cut - 1, cut, cut + 1):
        is_near = count == cut or abs(total[min(count, cut) - 1] - sampling.top_p) <= EDGE
        if 0 < count <= len(order) and is_near and token in order[:count]:
            kept = np.zeros_like(probabilities)
            kept[order[:count]] = probabilities[order[:count]]
            best = min(best, _missed_by(kept, token, target))
    return best


def number(seed: int, choice: int, position: int) -> float:
    """The number in [0, 1) that decides one token: 53 bits of a SHA-256."""
    digest = hashlib.sha256(f"souk-draw-v1\n{seed}\n{choice}\n{position}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / float(1 << 53)


def log_probabilities(logits: Floats) -> Doubles:
    """Natural logarithms of the probabilities at temperature 1, [vocabulary]."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _probabilities(logits: Floats, temperature: float) -> Doubles:
    shifted = (logits.astype(np.float64) - float(logits.max())) / temperature
    weights = np.exp(shifted)
    return np.asarray(weights / weights.sum())


def _ordered(probabilities: Doubles) -> tuple[npt.NDArray[np.int64], Doubles]:
    order = np.argsort(-probabilities, kind="stable")
    return order, np.cumsum(probabilities[order])


def _cut(total: Doubles, top_p: float) -> int:
    """How many of the likeliest make up top_p: at least one."""
    return min(int(np.searchsorted(total, top_p, side="left")) + 1, len(total))


def _missed_by(probabilities: Doubles, token: int, target: float) -> float:
    total = np.cumsum(probabilities)
    whole = total[-1]
    above = total[token] / whole
    below = above - probabilities[token] / whole
    return float(max(below - target, target - above, 0.0))
