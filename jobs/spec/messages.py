"""The words of each mistake in a job file: what is wrong, what was expected, and the valid name that is nearest.

A mistake is a SpecError (errors.py, which also says how it is printed). What pydantic finds is put into our words here;
rules over several fields bring their own words (rules.py, kinds/).
"""

from __future__ import annotations

import difflib
from decimal import Decimal
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from jobs.spec.document import Document, Path, dotted
from jobs.spec.errors import SpecError
from jobs.spec.kinds.registry import KINDS, expected_kinds, find_kind
from jobs.spec.model import JobFields
from jobs.spec.section import MAPPING_TAG, TEXT_TAG

SHOWN_CHARACTERS_MAX = 40
NEAR_ENOUGH = 0.6


def translate(document: Document, at: Path, details: ErrorDetails) -> SpecError:
    """Pydantic's finding in the section at this path, in our words."""
    path: Path = at + tuple(part for part in details["loc"] if part not in ("[key]", TEXT_TAG, MAPPING_TAG))
    if details["type"] == "extra_forbidden":
        return _unknown_field(document, path)
    expected = _expected(path)
    if details["type"] == "missing":
        return mistake_at(document, path, "is missing", expected)
    value = details["input"]
    raised = details.get("ctx", {}).get("error")
    message = f"{shown(value)} {raised if isinstance(raised, ValueError) else 'is not valid'}"
    if details["type"] in ("too_long", "too_short", "string_too_long", "string_too_short"):
        message = f"{shown(value)} is too {details['type'].rsplit('_', 1)[1]}"
    choices = _choices(details)
    return mistake_at(document, path, message, expected, nearest_of(value, choices))


def _unknown_field(document: Document, path: Path) -> SpecError:
    names = list(fields_at(path[:-1]))
    name = str(path[-1])
    kind = find_kind(path[0]) if len(path) == 2 else None
    if kind is not None and name in kind.misplaced:
        section = kind.misplaced[name]
        return mistake_at(
            document, path, f"is not a field of {kind.name}", f"it under {section}, as {section}: {{{name}: ...}}"
        )
    near = _elsewhere(name) or nearest_of(name, names)  # a name that there is means more than one that is alike
    return mistake_at(document, path, "unknown field", "one of " + ", ".join(names), near, at_key=True)


def _elsewhere(name: str) -> str | None:
    """The full path of a field of that name in another section."""
    top = fields_at(())
    for section, (_, model) in sorted(top.items(), key=lambda each: each[0] == "evaluation"):  # it repeats others' keys
        if model is not None and name in _fields_of(model):
            return f"{section}.{name}"
    return name if name in top else None


def _expected(path: Path) -> str:
    """The description of the deepest field on the path."""
    for length in range(len(path), 0, -1):
        description, _ = fields_at(path[: length - 1]).get(str(path[length - 1]), ("", None))
        if description:
            return description
    return ""


# What an error names as expected in a field, and the section that the field holds, if it is one.
_Field = tuple[str, type[BaseModel] | None]


def fields_at(path: Path) -> dict[str, _Field]:
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


def nearest_of(value: object, names: list[str]) -> str | None:
    """The name that is spelled most like the value; None where none is near."""
    if not isinstance(value, str) or not names:
        return None
    known = {name.lower(): name for name in names}
    found = difflib.get_close_matches(value[:100].lower(), known, n=1, cutoff=NEAR_ENOUGH)
    return known[found[0]] if found else None


def mistake_at(
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


def shown(value: object) -> str:
    """A value as the file has it, cut short."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value) if isinstance(value, Decimal | float) else f"{value}"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."
