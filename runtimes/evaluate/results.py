"""results.json and samples.jsonl: nothing in them depends on the batch, the time, the node or an interruption.

Of an endpoint they say what it answered when it was asked.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.evaluate import harness
from runtimes.evaluate.compare import Comparison, Sample, figure, is_higher_better, metric_name
from runtimes.evaluate.config import Config, Endpoint
from runtimes.evaluate.request import SCORE_DECIMALS
from runtimes.evaluate.tasks import TaskFile

FORMAT = 1
RESULTS_FILE = "results.json"
SAMPLES_FILE = "samples.jsonl"


@dataclass(frozen=True)
class Metric:
    """A task's figure; `stderr` as the harness gives it, None where it has none."""

    value: float
    stderr: float | None
    is_higher_better: bool


@dataclass(frozen=True)
class ModelResult:
    """One model's."""

    name: str
    digest: str
    parameters: int | None  # None: of an endpoint nobody says it
    requests: int
    metrics: dict[str, dict[str, Metric]]  # by task and name
    samples: list[Sample]
    endpoint: Endpoint | None = None


def read_metrics(found: dict[str, Any]) -> dict[str, dict[str, Metric]]:
    """The figures in the harness's results, by task and metric."""
    metrics: dict[str, dict[str, Metric]] = {}
    for task, figures in found["results"].items():
        known = found["higher_is_better"].get(task, {})
        of_task = metrics.setdefault(task, {})
        for key, value in figures.items():
            name, comma, filter_name = key.partition(",")
            if not comma or name.endswith("_stderr") or isinstance(value, str) or not math.isfinite(value):
                continue
            stderr = figures.get(f"{name}_stderr,{filter_name}")
            is_known = stderr is not None and not isinstance(stderr, str) and math.isfinite(stderr)
            spread = figure(stderr) if is_known else None
            of_task[metric_name(name, filter_name)] = Metric(figure(value), spread, is_higher_better(name, known))
    return metrics


def write_results(
    folder: Path,
    config: Config,
    tasks: list[TaskFile],
    models: list[ModelResult],
    comparisons: dict[str, list[Comparison]],
) -> dict[str, Any]:
    """Write both files; returns what results.json holds."""
    body = {
        "format": FORMAT,
        "harness": harness.version(),
        "score_decimals": SCORE_DECIMALS,
        "settings": {
            "limit": config.limit,
            "num_fewshot": config.num_fewshot,
            "seed": config.seed,
            "dtype": config.dtype,
        },
        "tasks": [{"name": task.name, "digest": task.digest, **_counts(task.name, models[0])} for task in tasks],
        "models": [
            {
                "name": model.name,
                "digest": model.digest,
                "parameters": model.parameters,
                "requests": model.requests,
                "metrics": {
                    task: {name: each.__dict__ for name, each in of_task.items()}
                    for task, of_task in model.metrics.items()
                },
                **_endpoint_facts(model),
            }
            for model in models
        ],
        "comparisons": [
            {
                "base": models[0].name,
                "model": name,
                "task": each.task,
                "metric": each.metric,
                "difference": each.difference,
                "stderr": each.stderr,
                "gained": each.count("gained"),
                "lost": each.count("lost"),
                "kept": each.count("kept"),
            }
            for name, of_model in comparisons.items()
            for each in of_model
        ],
    }
    (folder / RESULTS_FILE).write_text(json.dumps(body, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    with (folder / SAMPLES_FILE).open("w") as out:
        for model in models:
            for sample in model.samples:
                line = {"model": model.name, **sample.__dict__}
                out.write(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n")
    return body


def _counts(task: str, model: ModelResult) -> dict[str, int]:
    return {"samples": sum(sample.task == task for sample in model.samples)}


def _endpoint_facts(model: ModelResult) -> dict[str, Any]:
    """Where the answers come from, if not from weights; never the name or value of a key."""
    found = model.endpoint
    if found is None:
        return {}
    return {
        "endpoint": {"address": found.endpoint, "model": found.model, "chat": found.chat},
        "is_reproducible": False,  # what it serves may change under the same name
    }
