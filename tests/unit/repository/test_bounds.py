"""Whatever a stranger sends is bounded: no number, text, list or moment of a message is without its end.

Every pydantic model of the wires is walked, as pydantic built it, except those that the marketplace itself writes.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial
from typing import Annotated, Any, Final

import pytest
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field

WIRES: Final = (
    "provider_agent.protocol",
    "jobs.wire",
    "jobs.spec",
    "jobs.api",
    "jobs.gateway.messages",
    "marketplace.nodes.api",
    "billing.proofs",
)
# What the marketplace writes. A model that is not here, and is no jobs.wire.Wire, is held to the bounds.
ANSWERS: Final = frozenset(
    {
        *["AppendResponse", "ArtifactDownloads", "ArtifactUploads", "Assignment", "CheckOpen", "CheckTask"],
        *["CheckVerdict", "CheckpointPolicy", "Desired", "DeviceTask", "Earnings", "EnrolResponse", "FileUpload"],
        *["Finding", "GangMember", "GangPlace", "GatewayAnswer", "GatewayList", "GatewayPlace", "KeyAnswer"],
        *["EndpointLimits", "EndpointRow", "KeyGrant", "LinkDemand", "NodeStanding", "PaymentTerms", "Program"],
        *["ReceiptAck", "ReceiptParties", "RecallStep", "ReleaseManifest", "RemoteFile", "ReplicaRow", "ServePlace"],
        *["SignedAssignment", "SignedGateways", "StatementAck", "SyncResponse", "Table", "UpdateOrder", "UploadPart"],
        *["VersionRow", "_Said", "SignedReport"],
    }
)
QUERIES: Final = "Query"  # a model of query parameters, which are texts: its numbers cannot be strict
CONTAINERS: Final = frozenset({"list", "dict", "set", "frozenset"})
# Functions of ours that bound what they return: of moments, of what a job file writes as text, of a gateway's counts.
BOUNDING: Final = frozenset(
    {
        *["_within_calendar", "parse_money", "parse_duration", "parse_memory", "as_every", "_variable"],
        *["_counted", "_totalled", "_in_picos", "_timed", "_measured", "_waited", "_plain"],
    }
)


def models_of(name: str) -> Iterator[type[BaseModel]]:
    module = importlib.import_module(name)
    names = [name]
    if hasattr(module, "__path__"):
        names += [each.name for each in pkgutil.walk_packages(module.__path__, f"{name}.")]
    for each in names:
        for value in vars(importlib.import_module(each)).values():
            if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == each:
                yield value


def is_answer(model: type[BaseModel]) -> bool:
    return any(each.__name__ in ANSWERS | {"Wire"} for each in model.__mro__)


READ: Final = sorted(
    {model for wire in WIRES for model in models_of(wire) if not is_answer(model)},
    key=lambda model: (model.__module__, model.__name__),
)


def unbounded(model: type[BaseModel]) -> list[str]:
    """`field: what it lacks`, for every field of the model; other models in it are walked by themselves."""
    schema: Any = model.__pydantic_core_schema__
    fields = _fields_of(schema, {each["ref"]: each for each in schema.get("definitions", [])})
    is_strict = not (model.__name__.endswith(QUERIES) or model.model_config.get("strict"))
    return [f"{name}: {what}" for name, field in fields.items() for what in _lacks(field, {}, is_strict=is_strict)]


@pytest.mark.parametrize("model", READ, ids=lambda model: f"{model.__module__}.{model.__name__}")
def test_every_field_that_a_stranger_fills_is_bounded(model: type[BaseModel]) -> None:
    assert unbounded(model) == []


def test_no_answer_is_listed_that_is_gone() -> None:
    names = {model.__name__ for wire in WIRES for model in models_of(wire)}
    assert names >= ANSWERS


def _fields_of(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    while "fields" not in schema:
        schema = definitions[schema["schema_ref"]] if schema["type"] == "definition-ref" else schema["schema"]
    return dict(schema["fields"])


def _lacks(schema: Any, outer: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    """`outer`: limits that stand around the schema, because a function of ours is between them and it."""
    kind, function = schema["type"], _function_of(schema)
    if kind in {"model", "any", "definition-ref"} or getattr(function, "__name__", "") in BOUNDING:
        return
    if isinstance(function, partial):
        outer = {**outer, **function.keywords}
    limits = {**outer, **schema}
    if kind in LACKS:
        yield from LACKS[kind](limits, is_strict=is_strict)
    if kind in CONTAINERS or kind == "tuple":
        outer = {}
    if kind == "dict" and schema["values_schema"]["type"] == "any":
        return  # free: a job file, which jobs.spec reads
    for part in ("schema", "items_schema", "keys_schema", "values_schema", "choices"):
        found = schema.get(part)
        if part == "choices" and isinstance(found, dict):  # of a tagged union: by tag
            found = list(found.values())
        for each in found if isinstance(found, list) else [found]:
            inner = each[0] if isinstance(each, tuple) else each
            if isinstance(inner, dict):
                yield from _lacks(inner, outer, is_strict=is_strict)


def _function_of(schema: Any) -> Any:
    return schema["function"]["function"] if schema["type"].startswith("function-") else None


def _number_lacks(limits: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    if not limits.keys() & {"ge", "gt"} or not limits.keys() & {"le", "lt"}:
        yield f"a number ({limits['type']}) without both bounds"
    if is_strict and not limits.get("strict"):
        yield "a number that takes true for 1"


def _text_lacks(limits: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    if "max_length" not in limits and not _is_short(limits.get("pattern")):
        yield "a text without max_length or a bounded pattern"


def _container_lacks(limits: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    is_free = limits["type"] == "dict" and limits["values_schema"]["type"] == "any"
    if "max_length" not in limits and not is_free:
        yield f"a {limits['type']} without max_length"


def _moment_lacks(limits: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    yield "a moment that is no provider_agent.protocol.Moment"


def _day_lacks(limits: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    if not limits.keys() >= {"ge", "le"}:
        yield "a day without bounds"


def _is_short(pattern: Any) -> bool:
    """Has both ends, and repeats nothing without end (in a class of characters + and * are characters)."""
    text = re.sub(r"\[[^]]*\]", "", str(getattr(pattern, "pattern", pattern) or "+"))
    return text.startswith("^") and text.endswith("$") and not {"*", "+"} & set(text)


LACKS: Final[Mapping[str, Callable[..., Iterator[str]]]] = {
    "int": _number_lacks,
    "float": _number_lacks,
    "str": _text_lacks,
    "datetime": _moment_lacks,
    "date": _day_lacks,
    **dict.fromkeys(CONTAINERS, _container_lacks),
}


class Unbounded(BaseModel):
    number: int
    floor_only: int = Field(ge=0, strict=True)
    true_is_one: int = Field(ge=0, le=1)
    figure: float
    text: str
    endless: str = Field(pattern="^a+$")
    texts: dict[str, list[str]]
    moment: AwareDatetime
    day: date
    bounded: Annotated[list[Annotated[str, Field(max_length=3)]], BeforeValidator(lambda one: one), Field(max_length=9)]


def test_every_kind_of_unbounded_field_is_found() -> None:
    found = {each.split(":")[0] for each in unbounded(Unbounded)}
    assert found == Unbounded.model_fields.keys() - {"bounded"}
