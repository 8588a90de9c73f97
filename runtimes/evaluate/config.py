"""The configuration of an evaluation. No torch here: a bad one is refused before torch is imported.

models       one model or a list: a folder below input/, or in a shared host folder (lent/LABEL/...), or an id of the
             hub, or an endpoint (below); the others are compared with the first
tasks        a YAML file of the harness below input/, a folder of them, or a list of those
limit        samples of each task, from the beginning; null: all of them
batch_size   requests that are taken at a time, over all devices; answers do not depend on it
num_fewshot  solved examples before each question; null: as the task file says
seed         of the choice of these examples
dtype        float32, bfloat16 or float64: what the models compute in; the last for equal scores on unlike devices
map          whether the report has a map of the samples, which takes one more request a sample; it is made by the first
             model that is no endpoint

An endpoint is a mapping:

endpoint     the address of an OpenAI-compatible service, up to /v1
model        the model's name there
key          the secret whose value is its key, in the variable ENDPOINT_KEY_NAME; null: it takes none
chat         whether /chat/completions is asked, with one message of a user; else /completions
concurrency  requests to it at once
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runtimes.checking import Check, Unreadable, boolean, check_keys, integer, one_of, read_json
from runtimes.contract import endpoint_mistake
from runtimes.train.errors import BadConfig

MODELS_MAX = 8
TASKS_MAX = 64
PATH_CHARACTERS_MAX = 300
LIMIT_MAX = 1_000_000
BATCH_SIZE_MAX = 1024
FEWSHOT_MAX = 100
CONCURRENCY_MAX = 32
NAME_CHARACTERS_MAX = 200  # of a model, at its endpoint
DTYPES = ("float32", "bfloat16", "float64")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class Endpoint:
    """A model behind an OpenAI-compatible address; the module's docstring says what each key is."""

    endpoint: str  # without a slash at its end
    model: str
    key: str | None = None
    chat: bool = False
    concurrency: int = 4

    @property
    def name(self) -> str:
        """What results call it."""
        parts = urlsplit(self.endpoint)
        return f"{self.model} at {parts.netloc}{parts.path}" + (" (chat)" if self.chat else "")


@dataclass(frozen=True)
class Config:
    """One evaluation; the module's docstring says what each key is."""

    models: tuple[str | Endpoint, ...]
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


def name_of(model: str | Endpoint) -> str:
    """What results call a model."""
    return model if isinstance(model, str) else model.name


def _models(value: Any) -> tuple[str | Endpoint, ...]:
    """Names of folders and endpoints, in their order."""
    each = value if isinstance(value, list) else [value]
    if not 1 <= len(each) <= MODELS_MAX:
        raise ValueError(f"must be a model or a list of 1 to {MODELS_MAX} models")
    found = tuple(_endpoint(one) if isinstance(one, dict) else one for one in each)
    names = [name_of(one) for one in found if isinstance(one, str | Endpoint)]
    if not all(isinstance(one, Endpoint) or _is_name(one) for one in found):
        raise ValueError(f"must hold texts of 1 to {PATH_CHARACTERS_MAX} characters and endpoints only")
    if len(set(names)) != len(names):
        raise ValueError("must name each only once")
    return found


def _endpoint(value: dict[Any, Any]) -> Endpoint:
    """One endpoint; raises ValueError with what is wrong in it."""
    values, mistakes = check_keys(value, ENDPOINT_CHECKS)
    mistakes += [f"{key} is missing" for key in ("endpoint", "model") if key not in value]
    if not mistakes and (wrong := endpoint_mistake(values["endpoint"], has_key=values.get("key") is not None)):
        mistakes.append(f"endpoint {wrong}")
    if mistakes:
        raise ValueError("has an endpoint with mistakes: " + ", ".join(mistakes))
    return Endpoint(**values | {"endpoint": values["endpoint"].rstrip("/")})


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= PATH_CHARACTERS_MAX


def _text(most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= most or not (value.isascii() and value.isprintable()):
            raise ValueError(f"must be a text of 1 to {most} plain characters")
        return value

    return check


def _variable(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise ValueError("must be the name of a secret, or null")
    return value


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


ENDPOINT_CHECKS: dict[str, Check] = {
    "endpoint": _text(PATH_CHARACTERS_MAX),
    "model": _text(NAME_CHARACTERS_MAX),
    "key": _variable,
    "chat": boolean,
    "concurrency": integer(1, CONCURRENCY_MAX),
}
CHECKS: dict[str, Check] = {
    "models": _models,
    "tasks": _names(TASKS_MAX),
    "limit": integer(1, LIMIT_MAX, optional=True),
    "batch_size": integer(1, BATCH_SIZE_MAX),
    "num_fewshot": integer(0, FEWSHOT_MAX, optional=True),
    "seed": integer(0, 2**63 - 1),
    "dtype": one_of(*DTYPES),
    "map": boolean,
}
