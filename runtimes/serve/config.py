"""The configuration of a replica: what an engine needs to know of a job file's `serve` section. No torch.

model          one of {job: id}, {folder: path}, {hub: org/name[@revision]}, {lent: label}
served_as      what callers write as `model`
engine         auto, vllm, transformers, souk or embed
dtype          auto, float32, bfloat16 or float16
quantization   none, fp8, awq, gptq or bitsandbytes
context        tokens that a request reads and writes in all; null: what the model was made for
max_tokens     that a request writes at most
in_flight      requests at once that the replica should bear
verify         whether the engine must commit to what it computed
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from runtimes.serve.errors import BadConfig

CONFIG_BYTES_MAX = 1 << 20
CONTEXT_MIN, CONTEXT_MAX = 16, 1 << 22
TOKENS_OUT_MAX = 1 << 20
IN_FLIGHT_MAX = 10_000
NAME_CHARACTERS_MAX = 300
SOURCES = ("job", "folder", "hub", "lent")
ENGINES = ("auto", "vllm", "transformers", "souk", "embed")
DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZATIONS = ("none", "fp8", "awq", "gptq", "bitsandbytes")


@dataclass(frozen=True)
class Source:
    """Where the weights come from: `kind` is one of SOURCES."""

    kind: str
    value: str


@dataclass(frozen=True)
class ServeConfig:
    """One replica's configuration, checked. Made by `parse_config`."""

    model: Source
    served_as: str
    engine: str = "auto"
    dtype: str = "auto"
    quantization: str = "none"
    context: int | None = None
    max_tokens: int = 4096
    in_flight: int = 8
    verify: bool = False


def read_config(path: Path) -> ServeConfig:
    """The checked configuration in a JSON file; raises BadConfig with every mistake in it."""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise BadConfig([f"{path} is larger than {CONFIG_BYTES_MAX} bytes"])
        raw = json.loads(path.read_text())
    except OSError as error:
        raise BadConfig([f"{path} cannot be read: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:
        raise BadConfig([f"{path} is not JSON: {error}"]) from error
    return parse_config(raw)


def parse_config(raw: object) -> ServeConfig:
    """The checked configuration; raises BadConfig that lists every mistake."""
    if not isinstance(raw, dict):
        raise BadConfig([f"the configuration must be a mapping of keys, not {_shown(raw)}"])
    mistakes = [f"unknown key {_shown(key)}" for key in raw if key not in CHECKS]
    mistakes += [f"{key} is missing" for key in ("model", "served_as") if key not in raw]
    values: dict[str, Any] = {}
    for key, check in CHECKS.items():
        if key not in raw:
            continue
        try:
            values[key] = check(raw[key])
        except ValueError as error:
            mistakes.append(f"{key} {error}, got {_shown(raw[key])}")
    if values.get("verify") and values.get("engine", "auto") not in ("auto", "souk"):
        mistakes.append("verify needs the engine souk, which commits to what it computed")
    if mistakes:
        raise BadConfig(mistakes)
    return ServeConfig(**values)


def _source(value: Any) -> Source:
    given = [kind for kind in SOURCES if isinstance(value, dict) and value.get(kind) is not None]
    if len(given) != 1 or set(value) - set(SOURCES):
        raise ValueError(f"must have exactly one of {', '.join(SOURCES)}")
    kind, text = given[0], value[given[0]]
    if not isinstance(text, str) or not 0 < len(text) <= NAME_CHARACTERS_MAX or "\0" in text:
        raise ValueError(f"must have a text of 1 to {NAME_CHARACTERS_MAX} characters as {kind}")
    path = PurePosixPath(text)
    if kind in ("folder", "lent") and (path.is_absolute() or ".." in path.parts):
        raise ValueError("must stay within its folder")
    return Source(kind, text)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX or not value.isprintable():
        raise ValueError(f"must be a text of 1 to {NAME_CHARACTERS_MAX} characters")
    return value


def _integer(low: int, high: int, *, optional: bool = False) -> Callable[[Any], int | None]:
    def check(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return check


def _one_of(*known: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return str(value)

    return check


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


CHECKS: dict[str, Callable[[Any], Any]] = {
    "model": _source,
    "served_as": _name,
    "engine": _one_of(*ENGINES),
    "dtype": _one_of(*DTYPES),
    "quantization": _one_of(*QUANTIZATIONS),
    "context": _integer(CONTEXT_MIN, CONTEXT_MAX, optional=True),
    "max_tokens": _integer(1, TOKENS_OUT_MAX),
    "in_flight": _integer(1, IN_FLIGHT_MAX),
    "verify": _boolean,
}
