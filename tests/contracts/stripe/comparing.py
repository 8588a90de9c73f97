"""Says where an object differs from what Stripe publishes: its fixtures, and the types of its own Python library."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final, ForwardRef, Literal, Union, get_args, get_origin

import stripe
from stripe import ListObject, StripeObject

# Objects of the wire by their name, as stripe-python knows them.
CLASSES: Final[dict[str, type[StripeObject]]] = {
    one.OBJECT_NAME: one
    for one in (
        stripe.Account,
        stripe.AccountLink,
        stripe.Balance,
        stripe.BalanceTransaction,
        stripe.BankAccount,
        stripe.Charge,
        stripe.checkout.Session,
        stripe.Customer,
        stripe.Dispute,
        stripe.Event,
        stripe.LineItem,
        stripe.PaymentIntent,
        stripe.PaymentMethod,
        stripe.Payout,
        stripe.radar.EarlyFraudWarning,
        stripe.Refund,
        stripe.TransferReversal,
        stripe.SetupIntent,
        stripe.Transfer,
        stripe.WebhookEndpoint,
    )
}

# Keys whose own keys are the account owner's or a test's, not Stripe's.
FREE: Final = frozenset({"metadata", "object.metadata"})
# Stripe shows these only with an `expand` parameter; the fixtures have been made with them.
INCLUDABLE: Final = {"charge": {"refunds"}}


def differences_from_types(value: Any) -> list[str]:
    """Every place where an answer, or an object within it, is not of the type that stripe-python declares for it."""
    if isinstance(value, dict) and value.get("object") in {"list", "search_result"}:
        return [line for one in value["data"] for line in differences_from_types(one)]
    if not isinstance(value, dict) or value.get("object") not in CLASSES or value.get("deleted"):
        return []
    return list(_of_class(value, CLASSES[value["object"]], value["object"]))


def differences_from_fixture(made: Mapping[str, Any], fixture: Mapping[str, Any]) -> list[str]:
    """Every key that the fixture has and the object lacks, or whose value is of another JSON type.

    A null says nothing of a type; what may be null is known from stripe-python's types, not from here. A key that only
    the object has must be one that stripe-python knows.
    """
    name = str(fixture["object"])
    known = set(typing.cast(Any, CLASSES[name]).__annotations__) | set(fixture)
    optional = INCLUDABLE.get(name, set())
    missing = [f"{name}.{key}: missing" for key in fixture if key not in made and key not in optional]
    unknown = [f"{name}.{key}: unknown" for key in made if key not in known and key not in {"id", "object", "created"}]
    return missing + unknown + list(_kinds(made, fixture, name))


def _kinds(made: Mapping[str, Any], fixture: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in made.keys() & fixture.keys():
        left, right = made[key], fixture[key]
        if left is None or right is None or key in FREE:
            continue
        if _kind(left) != _kind(right):
            yield f"{path}.{key}: {_kind(left)}, not {_kind(right)}"
        elif isinstance(left, dict) and "object" not in right:
            yield from _kinds(left, right, f"{path}.{key}")


def _kind(value: Any) -> str:
    return "number" if type(value) in {int, float} else type(value).__name__


def _of_class(value: Mapping[str, Any], declared: type, path: str) -> Iterator[str]:
    annotations = {name: kind for name, kind in declared.__annotations__.items() if not name.startswith("_")}
    annotations.pop("OBJECT_NAME", None)
    for name, kind in annotations.items():
        if name not in value:
            if not _is_optional(kind):
                yield f"{path}.{name}: missing"
            continue
        yield from _of_kind(value[name], kind, f"{path}.{name}")
    for name in value.keys() - annotations.keys():
        yield f"{path}.{name}: unknown to stripe-python"


def _of_kind(value: Any, kind: Any, path: str) -> Iterator[str]:
    """What is wrong with a value of a declared kind; a union is right where one of its arms is."""
    origin = get_origin(kind)
    if origin in {Union, types.UnionType}:
        tries = [list(_of_kind(value, arm, path)) for arm in get_args(kind)]
        if all(tries):
            yield from min(tries, key=len) if value is not None else [f"{path}: null"]
    elif kind is Any:
        return
    elif kind is type(None):
        if value is not None:
            yield f"{path}: {value!r} is not null"
    elif origin is Literal:
        if value not in get_args(kind):
            yield f"{path}: {value!r} is none of {get_args(kind)}"
    elif origin is list:
        yield from _of_list(value, kind, path)
    elif isinstance(kind, ForwardRef | str) or origin is ListObject or kind is ListObject:
        if not isinstance(value, dict | str):
            yield f"{path}: {value!r} is neither an object nor its id"
        yield from differences_from_types(value)
    elif origin is not None:  # UntypedStripeObject[str] and its like: keys of anybody's choice
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is no object"
    elif isinstance(kind, type) and issubclass(kind, StripeObject):
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is no object"
        elif kind.__annotations__ and kind is not StripeObject:
            yield from _of_class(value, kind, path)
    elif type(value) is not kind and not (kind is float and type(value) is int):
        yield f"{path}: {value!r} is no {getattr(kind, '__name__', kind)}"


def _of_list(value: Any, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: {value!r} is no list"
        return
    for index, one in enumerate(value):
        yield from _of_kind(one, get_args(kind)[0], f"{path}[{index}]")


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in {Union, types.UnionType} and type(None) in get_args(kind)
