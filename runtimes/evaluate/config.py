"""The configuration of an evaluation. No torch here: a bad one is refused before torch is imported.

models       one model or a list: a folder below input/, or in a shared host folder (lent/LABEL/...), or an id of the
             hub; the others are compared with the first
tasks        a YAML file of the harness below input/, a folder of them, or a list of those
limit        samples of each task, from the beginning; null: all of them
batch_size   requests that are taken at a time, over all devices; answers do not depend on it
num_fewshot  solved examples before each question; null: as the task file says
seed         of the choice of these examples
dtype        float32, bfloat16 or float64: what the models compute in; the last for equal scores on unlike devices
map          whether the report has a map of the samples, which takes one more request a sample
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.checking import Check, Unreadable, boolean, check_keys, integer, one_of, read_json
from runtimes.train.errors import BadConfig

MODELS_MAX = 8
TASKS_MAX = 64
PATH_CHARACTERS_MAX = 300
LIMIT_MAX = 1_000_000
BATCH_SIZE_MAX = 1024
FEWSHOT_MAX = 100
DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True)
class Config:
    """One evaluation; the module's docstring says what each key is."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    limit: int | None = None
    batch_size: int = 8
    num_fewshot: int | None = None
    seed: int = 0
    dtype: str = "float32"
    map: bool = True


def read_config(path: Path) -> Config:
    """The configuration in a JSON file; raises BadConfig with every mistake in it."""
    try:
        raw = read_json(path)
    except Unreadable as error:
        raise BadConfig([str(error)]) from error
    return check_config(raw)


def check_config(raw: object) -> Config:
    """The configuration of a mapping that came as JSON; raises BadConfig with every mistake in it."""
    values, mistakes = check_keys(raw, CHECKS)
    if isinstance(raw, dict):
        mistakes += [f"{key} is missing" for key in ("models", "tasks") if key not in raw]
    if mistakes:
        raise BadConfig(mistakes)
    return Config(**values)


def _names(most: int) -> Callable[[Any], tuple[str, ...]]:
    def check(value: Any) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not 1 <= len(names) <= most:
            raise ValueError(f"must be a text or a list of 1 to {most} texts")
        if not all(isinstance(name, str) and 1 <= len(name) <= PATH_CHARACTERS_MAX for name in names):
            raise ValueError(f"must hold texts of 1 to {PATH_CHARACTERS_MAX} characters only")
        if len(set(names)) != len(names):
            raise ValueError("must name each only once")
        return tuple(names)

    return check


CHECKS: dict[str, Check] = {
    "models": _names(MODELS_MAX),
    "tasks": _names(TASKS_MAX),
    "limit": integer(1, LIMIT_MAX, optional=True),
    "batch_size": integer(1, BATCH_SIZE_MAX),
    "num_fewshot": integer(0, FEWSHOT_MAX, optional=True),
    "seed": integer(0, 2**63 - 1),
    "dtype": one_of(*DTYPES),
    "map": boolean,
}
