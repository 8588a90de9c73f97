"""From a job file's text, or a mapping that came as JSON, to a Spec; every mistake at once."""

from __future__ import annotations

import difflib
import json
from decimal import Decimal
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from jobs.spec.document import DEPTH_MAX, FILE_BYTES_MAX, Document, Path, dotted, read_document
from jobs.spec.errors import SpecError, SpecErrors
from jobs.spec.model import Budget, Checkpoint, Payment, Resources, Retry, Spec, Work
from jobs.spec.rules import check_rules
from jobs.spec.serve import Serve
from jobs.spec.train import Train

SHOWN_CHARACTERS_MAX = 40
NEAR_ENOUGH = 0.6

SECTIONS: dict[str, type[BaseModel]] = {
    "resources": Resources,
    "work": Work,
    "budget": Budget,
    "payment": Payment,
    "checkpoint": Checkpoint,
    "retry": Retry,
    "train": Train,
    "serve": Serve,
}


def parse(source: str | bytes) -> Spec:
    """The spec in a job file's text; raises SpecErrors with every mistake, each with its line."""
    return _check(read_document(source))


def from_wire(body: object) -> Spec:
    """The spec in a mapping that came as JSON: the same rules, mistakes without lines; raises SpecErrors."""
    # Depth first: json recurses in C, where a hundred thousand levels end the process rather than raise.
    if _depth(body) > DEPTH_MAX:
        raise SpecErrors([SpecError(None, None, "", f"nested more than {DEPTH_MAX} deep")])
    try:
        size = len(json.dumps(body, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SpecErrors([SpecError(None, None, "", f"the spec is not JSON: {error}")]) from error
    if size > FILE_BYTES_MAX:
        raise SpecErrors([SpecError(None, None, "", f"the spec has {size} bytes", f"at most {FILE_BYTES_MAX} bytes")])
    return _check(Document(data=body))


def _check(document: Document) -> Spec:
    data = document.data
    if not isinstance(data, dict):
        message = f"{_shown(data)} is not a job file"
        raise SpecErrors([_error(document, (), message, "a mapping that begins with kind: train or kind: serve")])
    data = {key: value for key, value in data.items() if value is not None or key not in Spec.model_fields}
    errors = list(document.errors)
    spec = None
    try:
        spec = Spec.model_validate(data)
    except ValidationError as failed:
        errors += [_translate(document, details) for details in failed.errors(include_url=False)]
    errors += [_error(document, path, message, expected) for path, message, expected in check_rules(data)]
    if errors or spec is None:
        raise SpecErrors(dict.fromkeys(errors))
    return spec


def _translate(document: Document, details: ErrorDetails) -> SpecError:
    """Pydantic's finding in our words."""
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    if details["type"] == "extra_forbidden":
        return _unknown_field(document, path)
    expected = _expected(path)
    if details["type"] == "missing":
        return _error(document, path, "is missing", expected)
    value = details["input"]
    raised = details.get("ctx", {}).get("error")
    message = f"{_shown(value)} {raised if isinstance(raised, ValueError) else 'is not valid'}"
    if details["type"] in ("too_long", "too_short", "string_too_long", "string_too_short"):
        message = f"{_shown(value)} is too {details['type'].rsplit('_', 1)[1]}"
    choices = _choices(details)
    return _error(document, path, message, expected, _nearest(value, choices))


def _unknown_field(document: Document, path: Path) -> SpecError:
    model = _model_at(path[:-1])
    names = [_public(name, info) for name, info in model.model_fields.items()]
    name = str(path[-1])
    if path in (("train", "tokens"), ("train", "steps")):
        return _error(document, path, "is not a field of train", f"it under work, as work: {{{name}: ...}}")
    near = _nearest(name, names) or _elsewhere(name)
    return _error(document, path, "unknown field", "one of " + ", ".join(names), near, at_key=True)


def _elsewhere(name: str) -> str | None:
    """The full path of a field of that name in another section."""
    for section, model in SECTIONS.items():
        if any(_public(field, info) == name for field, info in model.model_fields.items()):
            return f"{section}.{name}"
    return name if name in Spec.model_fields else None


def _expected(path: Path) -> str:
    """The description of the deepest field on the path."""
    for length in range(len(path), 0, -1):
        fields = _model_at(path[: length - 1]).model_fields.items()
        found = next((info for name, info in fields if _public(name, info) == path[length - 1]), None)
        if found is not None and found.description:
            return found.description
    return ""


def _model_at(path: Path) -> type[BaseModel]:
    """The section that a path leads to, or the nearest one above it."""
    model: type[BaseModel] = Spec
    for part in path:
        found = next((info for name, info in model.model_fields.items() if _public(name, info) == part), None)
        model = (_section_in(found.annotation) if found else None) or model
    return model


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds: itself, or in a list, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def _choices(details: ErrorDetails) -> list[str]:
    if details["type"] != "literal_error":
        return []
    return [word.strip(" '") for word in details["ctx"]["expected"].replace(" or ", ", ").split(",")]


def _nearest(value: object, names: list[str]) -> str | None:
    if not isinstance(value, str) or not names:
        return None
    known = {name.lower(): name for name in names}
    found = difflib.get_close_matches(value[:100].lower(), known, n=1, cutoff=NEAR_ENOUGH)
    return known[found[0]] if found else None


def _error(
    document: Document,
    path: Path,
    message: str,
    expected: str = "",
    nearest: str | None = None,
    *,
    at_key: bool = False,
) -> SpecError:
    """A mistake at the value of `path`, or at its key; for what is missing, at the nearest thing around it."""
    places = (document.keys, document.values) if at_key else (document.values, document.keys)
    for length in range(len(path), -1, -1):
        place = next((found[path[:length]] for found in places if path[:length] in found), None)
        if place is not None:
            return SpecError(place.line, place.column, dotted(path), message, expected, nearest)
    return SpecError(None, None, dotted(path), message, expected, nearest)


def _public(name: str, info: FieldInfo) -> str:
    return info.alias or name


def _shown(value: object) -> str:
    """A value as the file has it, cut short."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value) if isinstance(value, Decimal | float) else f"{value}"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def _depth(body: object) -> int:
    level, depth = [body], 0
    while level and depth <= DEPTH_MAX:
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        depth += 1
    return depth
