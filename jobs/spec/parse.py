"""From a job file's text, or a mapping that came as JSON, to a Spec; every mistake at once."""

from __future__ import annotations

import difflib
import json
from decimal import Decimal
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.spec.document import DEPTH_MAX, FILE_BYTES_MAX, Document, Path, dotted, read_document
from jobs.spec.errors import SpecError, SpecErrors
from jobs.spec.kinds.table import KINDS, expected_kinds, find_kind
from jobs.spec.model import JobFields, Spec
from jobs.spec.rules import check_rules
from jobs.spec.section import Section

SHOWN_CHARACTERS_MAX = 40
NEAR_ENOUGH = 0.6

_AnySection = TypeVar("_AnySection", bound=Section)


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
        raise SpecErrors([_error(document, (), message, "a mapping that begins with kind, such as kind: train")])
    known = _fields_at(())
    data = {key: value for key, value in data.items() if value is not None or key not in known}
    errors = list(document.errors)
    sections = {name: kind.section for name, kind in KINDS.items() if kind.section is not None and name in data}
    fields = _validate(document, JobFields, {key: data[key] for key in data if key not in sections}, (), errors)
    found = {name: _validate(document, section, data[name], (name,), errors) for name, section in sections.items()}
    if isinstance(name := data.get("kind"), str) and find_kind(name) is None:
        message = f"{_shown(name)} is not a kind"
        errors.append(_error(document, ("kind",), message, expected_kinds(), _nearest(name, list(KINDS))))
    errors += [_error(document, path, message, expected) for path, message, expected in check_rules(data)]
    if errors or fields is None:
        raise SpecErrors(dict.fromkeys(errors))
    # Validated already: once more would read micro-dollars as dollars.
    return Spec.model_construct(**dict(fields), section=found.get(fields.kind))


def _validate(
    document: Document, model: type[_AnySection], data: Any, at: Path, errors: list[SpecError]
) -> _AnySection | None:
    """The model of `data`; None where there are mistakes, which `errors` has then."""
    try:
        return model.model_validate(data)
    except ValidationError as failed:
        errors += [_translate(document, at, details) for details in failed.errors(include_url=False)]
        return None


def _translate(document: Document, at: Path, details: ErrorDetails) -> SpecError:
    """Pydantic's finding in the section at this path, in our words."""
    path: Path = at + tuple(part for part in details["loc"] if part != "[key]")
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
    names = list(_fields_at(path[:-1]))
    name = str(path[-1])
    kind = find_kind(path[0]) if len(path) == 2 else None
    if kind is not None and name in kind.misplaced:
        section = kind.misplaced[name]
        return _error(
            document, path, f"is not a field of {kind.name}", f"it under {section}, as {section}: {{{name}: ...}}"
        )
    near = _nearest(name, names) or _elsewhere(name)
    return _error(document, path, "unknown field", "one of " + ", ".join(names), near, at_key=True)


def _elsewhere(name: str) -> str | None:
    """The full path of a field of that name in another section."""
    top = _fields_at(())
    for section, (_, model) in top.items():
        if model is not None and name in _fields_of(model):
            return f"{section}.{name}"
    return name if name in top else None


def _expected(path: Path) -> str:
    """The description of the deepest field on the path."""
    for length in range(len(path), 0, -1):
        description, _ = _fields_at(path[: length - 1]).get(str(path[length - 1]), ("", None))
        if description:
            return description
    return ""


# What an error names as expected in a field, and the section that the field holds, if it is one.
_Field = tuple[str, type[BaseModel] | None]


def _fields_at(path: Path) -> dict[str, _Field]:
    """By their names in the file, the fields of the section that a path leads to, or of the nearest one above it."""
    fields = _fields_of(JobFields) | {
        name: (kind.section_expected, kind.section) for name, kind in KINDS.items() if kind.section is not None
    }
    fields["kind"] = (expected_kinds(), None)
    for part in path:
        _, model = fields.get(str(part), ("", None))
        fields = _fields_of(model) if model is not None else fields
    return fields


def _fields_of(model: type[BaseModel]) -> dict[str, _Field]:
    return {
        info.alias or name: (info.description or "", _section_in(info.annotation))
        for name, info in model.model_fields.items()
    }


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
