"""Stripe's form encoding: `a[b][c]=1`, `a[]=x`, `a[0][b]=y`, and back to nested dicts and lists."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.stripe.errors import unusable

_NAME = re.compile(r"^([^\[\]]+)((?:\[[^\[\]]*\])*)$")
_PART = re.compile(r"\[([^\[\]]*)\]")


def decode(text: str) -> dict[str, Any]:
    """The nested parameters of a query or a body; every leaf is a string."""
    tree: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        match = _NAME.match(name)
        if match is None:
            raise unusable(f"Invalid parameter name: {name}", code="parameter_unknown", param=name)
        _put(tree, [match[1], *_PART.findall(match[2])], value)
    return {key: _listed(value) for key, value in tree.items()}


def as_int(params: dict[str, Any], name: str, default: int | None = None, *, minimum: int | None = None) -> int:
    """An integer parameter, refused in Stripe's words where it is none."""
    if name not in params:
        if default is None:
            raise unusable(f"Missing required param: {name}.", code="parameter_missing", param=name)
        return default
    text = str(params[name])
    if not re.fullmatch(r"-?\d{1,15}", text):
        raise unusable(f"Invalid integer: {text}", code="parameter_invalid_integer", param=name)
    if minimum is not None and int(text) < minimum:
        message = f"This value must be greater than or equal to {minimum}."
        raise unusable(message, code="parameter_invalid_integer", param=name)
    return int(text)


def as_bool(params: dict[str, Any], name: str, default: bool = False) -> bool:
    text = str(params.get(name, str(default))).lower()
    if text not in {"true", "false"}:
        raise unusable(f"Invalid boolean: {text}", code="parameter_invalid_boolean", param=name)
    return text == "true"


def _put(tree: dict[str, Any], path: list[str], value: str) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part or str(len(tree)), {})
        if not isinstance(tree, dict):
            raise unusable(f"Invalid object: {'.'.join(path)}", code="parameter_invalid_empty", param=path[0])
    tree[path[-1] or str(len(tree))] = value


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _listed(item) for key, item in value.items()}
    is_list = bool(inner) and all(key.isdigit() for key in inner)
    return [inner[key] for key in sorted(inner, key=int)] if is_list else inner
