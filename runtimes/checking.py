"""A runtime's configuration is refused whole, with every mistake in it, before anything is loaded. No torch here.

A runtime has a table of checks, one a key: each gives the checked value, or raises ValueError with what is wrong as
half a sentence ("must be true or false").
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

CONFIG_BYTES_MAX = 1 << 20
SHOWN_CHARACTERS_MAX = 60

Check = Callable[[Any], Any]
T = TypeVar("T")


class Unreadable(ValueError):
    """The file is no configuration; the message names the reason."""


def read_json(path: Path) -> object:
    """The content of a JSON file. Raises Unreadable."""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise Unreadable(f"{path} is larger than {CONFIG_BYTES_MAX} bytes")
        return json.loads(path.read_text())
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is not JSON: {error}") from error


def check_keys(raw: object, checks: Mapping[str, Check]) -> tuple[dict[str, Any], list[str]]:
    """The values that are good, and every mistake; unknown keys with the nearest known one."""
    if not isinstance(raw, dict):
        return {}, [f"the configuration must be a mapping of keys, not {shown(raw)}"]
    mistakes = [_unknown_key(key, checks) for key in raw if key not in checks]
    values: dict[str, Any] = {}
    for key, check in checks.items():
        if key not in raw:
            continue
        try:
            values[key] = check(raw[key])
        except ValueError as error:
            mistakes.append(f"{key} {error}, got {shown(raw[key])}")
    return values, mistakes


def shown(value: object) -> str:
    """As JSON, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def integer(low: int, high: int, *, optional: bool = False) -> Callable[[Any], int | None]:
    """A whole number within bounds; null where that is an answer."""

    def check(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return check


def number(low: float, high: float, *, above: bool = False) -> Callable[[Any], float]:
    """A finite number within bounds; `above`: the low bound itself is refused."""

    def check(value: Any) -> float:
        good = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
        if not good or not low <= value <= high or (above and value == low):
            raise ValueError(
                f"must be a number {'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}"
            )
        return float(value)

    return check


def one_of(*known: str) -> Callable[[Any], str]:
    """One of these words."""

    def check(value: Any) -> str:
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return str(value)

    return check


def section(made: Callable[..., T], checks: Mapping[str, Check]) -> Callable[[Any], T | None]:
    """A mapping of further keys, which may be empty; null where it is left out."""

    def check(value: Any) -> T | None:
        if value is None:
            return None
        values, mistakes = check_keys(value, checks)
        if mistakes:
            raise ValueError("has mistakes: " + "; ".join(mistakes))
        return made(**values)

    return check


def boolean(value: Any) -> bool:
    """True or false, and nothing that is taken for it."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _unknown_key(key: object, checks: Mapping[str, Check]) -> str:
    near = difflib.get_close_matches(str(key), checks, n=1)
    return f"unknown key {shown(key)}" + (f", did you mean {near[0]}?" if near else "")
