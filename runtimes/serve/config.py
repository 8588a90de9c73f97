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

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from runtimes.checking import Check, Unreadable, boolean, check_keys, integer, one_of, read_json
from runtimes.serve.errors import BadConfig

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
        raw = read_json(path)
    except Unreadable as error:
        raise BadConfig([str(error)]) from error
    return parse_config(raw)


def parse_config(raw: object) -> ServeConfig:
    """The checked configuration; raises BadConfig that lists every mistake."""
    values, mistakes = check_keys(raw, CHECKS)
    if isinstance(raw, dict):
        mistakes += [f"{key} is missing" for key in ("model", "served_as") if key not in raw]
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


CHECKS: dict[str, Check] = {
    "model": _source,
    "served_as": _name,
    "engine": one_of(*ENGINES),
    "dtype": one_of(*DTYPES),
    "quantization": one_of(*QUANTIZATIONS),
    "context": integer(CONTEXT_MIN, CONTEXT_MAX, optional=True),
    "max_tokens": integer(1, TOKENS_OUT_MAX),
    "in_flight": integer(1, IN_FLIGHT_MAX),
    "verify": boolean,
}
