"""Scores of samples, and what one model gained and lost against another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runtimes.evaluate.request import SCORE_DECIMALS

SHOWN_CHARACTERS_MAX = 2000  # of a sample's texts in what is written
FIGURE_DECIMALS = 6
# Of these a sample's harness value is a log-likelihood, alone or with what it is divided by; the score is its loss, of
# which less is better.
LOSSES = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")

Verdict = Literal["gained", "lost", "kept"]


@dataclass(frozen=True)
class Sample:
    """One sample with one model."""

    task: str
    number: int  # in its split, from 0
    text: str  # what was asked first
    target: str
    answer: str
    scores: dict[str, float]  # by metric; those that only a whole task has (bleu) are not here


@dataclass(frozen=True)
class Comparison:
    """A model against the first one, in one task, by its first metric that samples have."""

    task: str
    metric: str
    verdicts: list[Verdict]  # of each sample, in order
    difference: float  # of the mean scores
    stderr: float | None  # of that difference, paired by sample

    def count(self, verdict: Verdict) -> int:
        """How many samples have it."""
        return self.verdicts.count(verdict)


def read_samples(found: dict[str, Any]) -> list[Sample]:
    """The samples in the harness's results, by task and number."""
    samples: list[Sample] = []
    for task, entries in found["samples"].items():
        merged: dict[int, dict[str, float]] = {}
        first: dict[int, Any] = {}
        for entry in entries:  # one for each filter
            first.setdefault(entry["doc_id"], entry)
            scores = merged.setdefault(entry["doc_id"], {})
            for metric in entry["metrics"]:
                if (value := _score(metric, entry[metric])) is not None:
                    scores[metric_name(metric, entry["filter"])] = value
        for number in sorted(merged):
            entry = first[number]
            samples.append(
                Sample(
                    task=task,
                    number=number,
                    text=_text(entry["arguments"][0][0]),
                    target=_text(entry["target"]),
                    answer=_answer(entry),
                    scores=merged[number],
                )
            )
    return samples


def metric_name(metric: str, filter_name: str) -> str:
    """`exact_match`, or `exact_match,strict` where a filter of the task file came before it."""
    return metric if filter_name == "none" else f"{metric},{filter_name}"


def compare(
    base: Sequence[Sample], other: Sequence[Sample], higher_is_better: dict[str, dict[str, bool]]
) -> list[Comparison]:
    """The other model against the base, by task; both were asked the same samples."""
    found = []
    for task in dict.fromkeys(sample.task for sample in base):
        pairs = [(a, b) for a, b in zip(base, other, strict=True) if a.task == task]
        metric = next(iter(pairs[0][0].scores), None)
        if metric is None:
            continue
        sign = 1 if is_higher_better(metric, higher_is_better.get(task, {})) else -1
        deltas = [b.scores[metric] - a.scores[metric] for a, b in pairs]
        verdicts: list[Verdict] = [
            "kept" if not delta else "gained" if delta * sign > 0 else "lost" for delta in deltas
        ]
        mean = math.fsum(deltas) / len(deltas)
        spread = math.fsum((delta - mean) ** 2 for delta in deltas)
        stderr = (spread / (len(deltas) - 1) / len(deltas)) ** 0.5 if len(deltas) > 1 else None
        found.append(Comparison(task, metric, verdicts, figure(mean), None if stderr is None else figure(stderr)))
    return found


def is_higher_better(metric: str, known: dict[str, bool]) -> bool:
    """Whether more of it is better; of losses less is."""
    name = metric.partition(",")[0]
    return name not in LOSSES and bool(known.get(name, True))


def figure(value: float) -> float:
    """A figure as it is written."""
    return round(float(value), FIGURE_DECIMALS) + 0.0


def _score(metric: str, value: Any) -> float | None:
    """A sample's score; None for a metric that only a whole task has."""
    if isinstance(value, tuple | list):
        if metric not in LOSSES or len(value) != 2 or not value[1]:
            return None
        value = value[0] / value[1]
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return round(-number if metric in LOSSES else number, SCORE_DECIMALS) + 0.0


def _answer(entry: dict[str, Any]) -> str:
    """What was written; of several choices the likeliest."""
    responses = entry["filtered_resps"]
    if len(responses) > 1 and all(isinstance(each, tuple | list) for each in responses):
        best = max(range(len(responses)), key=lambda index: (responses[index][0], -index))
        return _text(entry["arguments"][best][-1]).strip()
    only = responses[0]
    return _text(only if isinstance(only, str) else only[0] if isinstance(only, tuple | list) else only)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"
