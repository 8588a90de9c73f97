"""From a job file's text, or a mapping that came as JSON, to a Spec; every mistake at once."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from jobs.spec.document import DEPTH_MAX, FILE_BYTES_MAX, Document, Path, read_document
from jobs.spec.errors import SpecError, SpecErrors
from jobs.spec.kinds.registry import KINDS, expected_kinds, find_kind
from jobs.spec.messages import fields_at, mistake_at, nearest_of, shown, translate
from jobs.spec.model import JobFields, Spec
from jobs.spec.rules import check_rules
from jobs.spec.section import Section

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
        message = f"{shown(data)} is not a job file"
        raise SpecErrors([mistake_at(document, (), message, "a mapping that begins with kind, such as kind: train")])
    known = fields_at(())
    data = {key: value for key, value in data.items() if value is not None or key not in known}
    errors = list(document.errors)
    sections = {name: kind.section for name, kind in KINDS.items() if kind.section is not None and name in data}
    fields = _validate(document, JobFields, {key: data[key] for key in data if key not in sections}, (), errors)
    found = {name: _validate(document, section, data[name], (name,), errors) for name, section in sections.items()}
    if isinstance(name := data.get("kind"), str) and find_kind(name) is None:
        message = f"{shown(name)} is not a kind"
        errors.append(mistake_at(document, ("kind",), message, expected_kinds(), nearest_of(name, list(KINDS))))
    errors += [mistake_at(document, path, message, expected) for path, message, expected in check_rules(data)]
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
        errors += [translate(document, at, details) for details in failed.errors(include_url=False)]
        return None


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
