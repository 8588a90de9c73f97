"""What lm-evaluation-harness asks of a model, and its metrics over the answers: the harness itself never computes.

`collect` runs it with a model that only writes down what it is asked; `score` runs it again with one that looks the
answers up. Between the two all requests are known: they can be computed in any order, on any devices, and after a loss
those that are missing.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from runtimes.evaluate.config import Config
from runtimes.evaluate.request import GENERATE, LIKELIHOOD, ROLLING, Answer, Request
from runtimes.evaluate.tasks import TaskFile, make_task
from runtimes.train.errors import BadData

BOOTSTRAPS = 1000  # resamples for the standard error of metrics that have no formula for it
# Nothing may be looked for on the hub, and nothing forked: other threads compute.
OFFLINE = {
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_MULTIPROC": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


def prepare() -> None:
    """Set what the harness reads when it is imported, and keep its log to warnings."""
    os.environ.update(OFFLINE)
    for name in ("lm_eval", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)


def version() -> str:
    """The harness's."""
    from importlib.metadata import version as version_of

    return version_of("lm_eval")


def collect(tasks: list[TaskFile], config: Config) -> tuple[list[Request], dict[str, Any]]:
    """Everything that the harness asks, each once, in its order, and its results over made-up answers; raises BadData.

    Of these results only what was asked is true: the texts of the samples, and how many there are.
    """
    asked: dict[Request, None] = {}

    def note(request: Request) -> Answer:
        asked[request] = None
        return {LIKELIHOOD: [-1.0, False], ROLLING: -1.0, GENERATE: ""}[request.kind]

    found = _run(tasks, config, note, bootstraps=0)
    return list(asked), found


def score(tasks: list[TaskFile], config: Config, answer: Callable[[Request], Answer]) -> dict[str, Any]:
    """The harness's results (`results`, `samples`, `higher_is_better`, ...) over these answers; raises BadData.

    A figure that is larger than any number is infinite, and the log says so.
    """
    return _run(tasks, config, answer, bootstraps=BOOTSTRAPS)


def _run(
    tasks: list[TaskFile], config: Config, answer: Callable[[Request], Answer], *, bootstraps: int
) -> dict[str, Any]:
    from lm_eval.evaluator import evaluate

    untyped: Any = evaluate
    made = {task.name: make_task(task, config) for task in tasks}
    for name, task in made.items():
        aggregations = task.aggregation()
        for metric, aggregate in aggregations.items():
            aggregations[metric] = _bounded(aggregate, f"task {name!r}: {metric} is larger than any number: left out")
    model = _asked_class()()
    model.answer = answer
    try:
        with _bounded_errors():
            found: dict[str, Any] = untyped(
                lm=model, task_dict={"tasks": made, "groups": {}}, limit=config.limit, bootstrap_iters=bootstraps
            )
    except BadData:
        raise
    except Exception as error:  # templates and data are the customer's: whatever they raise is said to them
        line = (str(error).strip() or "no message").splitlines()[0][:300]
        raise BadData(f"the harness cannot ask the tasks: {type(error).__name__}: {line}") from error
    finally:
        model.answer = None  # the harness may keep `model`; what `answer` holds must not live as long
    return found


@cache
def _asked_class() -> Any:
    """The class of what the harness takes for a model; made once, as the harness is imported late."""
    from lm_eval.api.model import LM

    base: Any = LM

    class Asked(base):  # type: ignore[misc]
        """Hands every request on to `answer`."""

        answer: Any = None  # Callable[[Request], Answer]

        def loglikelihood(self, requests: list[Any]) -> list[Any]:
            return [tuple(self.answer(Request(LIKELIHOOD, tuple(each.args)))) for each in requests]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[Any]:
            return [self.answer(Request(ROLLING, tuple(each.args))) for each in requests]

        def generate_until(self, requests: list[Any]) -> list[Any]:
            return [self.answer(_generation(*each.args)) for each in requests]

    return Asked


def _bounded(aggregate: Callable[..., Any], message: str) -> Callable[..., Any]:
    """The same, but infinite where its result is no number any more: a bad model's perplexity is e to the thousands."""

    @wraps(aggregate)
    def bounded(items: Any) -> Any:
        try:
            return aggregate(items)
        except OverflowError:
            print(message, flush=True)  # noqa: T201 - into the job's log
            return math.inf

    return bounded


@contextmanager
def _bounded_errors() -> Iterator[None]:
    """Meanwhile the harness finds the standard errors of bounded metrics, and one that overflows is infinite."""
    from lm_eval import evaluator_utils

    module: Any = evaluator_utils
    find = module.stderr_for_metric

    def find_bounded(metric: Any, bootstrap_iters: int) -> Any:
        # The harness knows its own functions by identity.
        spread = find(metric=getattr(metric, "__wrapped__", metric), bootstrap_iters=bootstrap_iters)
        return spread and _bounded(spread, "a standard error is larger than any number: left out")

    module.stderr_for_metric = find_bounded
    try:
        yield
    finally:
        module.stderr_for_metric = find


def _generation(context: str, settings: dict[str, Any]) -> Request:
    # A tuple, so that the request can be a key; JSON makes a list of it either way.
    return Request(GENERATE, (context, tuple(settings["until"]), settings["max_gen_toks"]))
