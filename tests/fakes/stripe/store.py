"""Everything the fake knows, by Stripe account: objects in the order they were made, ids, pages, expansion."""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import random
import re
import string
from collections.abc import Callable, Iterable
from typing import Any, Final

from stripe._object_classes import OBJECT_CLASSES

from tests.fakes.stripe.errors import absent, invalid, unusable
from tests.fakes.stripe.forms import as_int
from tests.fakes.stripe.shapes import Object, listing

PLATFORM: Final = "acct_platform0000000"
PAGE_DEFAULT: Final = 10
PAGE_MAX: Final = 100
EXPAND_DEPTH_MAX: Final = 4

ID_LETTERS: Final = string.ascii_letters + string.digits


class Store:
    """Objects by account and id. What is handed out may be changed by verbs; what goes over the wire is a copy."""

    def __init__(self, seed: int, now: Callable[[], int]) -> None:
        self._now = now
        self._random = random.Random(f"ids {seed}")
        self._count = itertools.count(1)
        self._objects: dict[str, dict[str, Object]] = {PLATFORM: {}}
        # What Stripe shows only with an `expand` parameter: (object, key) -> maker of the value.
        self.includable: dict[tuple[str, str], Callable[[str, Object], Any]] = {}

    def new_id(self, prefix: str, letters: int = 24) -> str:
        """Unlike any other, and the same in every run of the same seed."""
        tail = "".join(self._random.choices(ID_LETTERS, k=letters - 6))
        return f"{prefix}_{tail}{next(self._count):06d}"

    def add(self, account: str, fields: Object, *, prefix: str = "", has_livemode: bool = True) -> Object:
        """Keep a new object; what it has not got yet of id, created and livemode is filled in."""
        made = {"id": fields.get("id") or self.new_id(prefix), "created": self._now(), **fields}
        if has_livemode:
            made.setdefault("livemode", False)
        self._objects.setdefault(account, {})[made["id"]] = made
        return made

    def open_account(self, account: str) -> None:
        self._objects.setdefault(account, {})

    def has_account(self, account: str) -> bool:
        return account in self._objects

    def accounts(self) -> list[str]:
        return list(self._objects)

    def get(self, account: str, noun: str, object_id: str, *, param: str = "id") -> Object:
        found = self._objects.get(account, {}).get(object_id)
        if found is None or found["object"] != noun:
            raise absent(noun.replace("checkout.session", "checkout session").replace("_", " "), object_id, param=param)
        return found

    def find(self, object_id: str) -> tuple[str, Object]:
        """The account and the object of an id, whoever has it; KeyError where nobody does."""
        for account, objects in self._objects.items():
            if object_id in objects:
                return account, objects[object_id]
        raise KeyError(object_id)

    def remove(self, account: str, object_id: str) -> None:
        del self._objects[account][object_id]

    def all(self, noun: str, account: str = PLATFORM) -> list[Object]:
        """Oldest first."""
        return [found for found in list(self._objects.get(account, {}).values()) if found["object"] == noun]

    def page(self, account: str, noun: str, params: Object, url: str, *, by: tuple[str, ...] = ()) -> Object:
        """One page, newest first, of those that match the filters named in `by` and the range `created`."""
        rows = [row for row in reversed(self.all(noun, account)) if _matches(row, params, by)]
        return self.page_of(rows, params, url)

    def page_of(self, rows: list[Object], params: Object, url: str) -> Object:
        limit = as_int(params, "limit", PAGE_DEFAULT, minimum=1)
        if limit > PAGE_MAX:
            raise unusable(
                "This value must be less than or equal to 100.", code="parameter_invalid_integer", param="limit"
            )
        ids = [row["id"] for row in rows]
        after, before = params.get("starting_after"), params.get("ending_before")
        if after and before:
            raise invalid("You may only specify one of these parameters: ending_before, starting_after.")
        for name in ("starting_after", "ending_before"):
            if params.get(name) and params[name] not in ids:
                raise absent("object", params[name], param=name)
        if after:
            rows = rows[ids.index(after) + 1 :]
        if before:
            rows = rows[: ids.index(before)]
            return listing(url, rows[-limit:], has_more=len(rows) > limit)
        return listing(url, rows[:limit], has_more=len(rows) > limit)

    def rendered(self, account: str, value: Object, paths: Iterable[str] = ()) -> Object:
        """A copy for the wire, with the requested fields expanded."""
        shown = copy.deepcopy(value)
        for path in paths:
            parts = path.split(".")
            if len(parts) > EXPAND_DEPTH_MAX + 1:
                raise unusable(
                    "You cannot expand more than 4 levels of a property.", code="parameter_invalid", param="expand"
                )
            self._expand(account, shown, parts, path)
        return shown

    def _expand(self, account: str, value: Any, parts: list[str], path: str) -> None:
        if not parts or value is None:
            return
        if isinstance(value, list):
            for item in value:
                self._expand(account, item, parts, path)
            return
        name, rest = parts[0], parts[1:]
        maker = self.includable.get((str(value.get("object")), name))
        if maker is not None and name not in value:
            value[name] = copy.deepcopy(maker(account, value))
        if name not in value:
            if is_known(str(value.get("object")), name):
                return  # it may be expanded, and this object has none
            message = f"This property cannot be expanded ({path})."
            raise unusable(message, code="parameter_invalid", param="expand")
        found = value[name]
        if isinstance(found, str):
            found = value[name] = self._copy_of(account, found, path)
        if isinstance(found, list):
            value[name] = found = [self._copy_of(account, x, path) if isinstance(x, str) else x for x in found]
        self._expand(account, found, rest, path)

    def _copy_of(self, account: str, object_id: str, path: str) -> Object:
        # A transfer names objects of the connected account; Stripe shows them to the platform when expanded.
        found = self._objects[account].get(object_id)
        if found is None:
            try:
                found = self.find(object_id)[1]
            except KeyError:
                message = f"This property cannot be expanded ({path})."
                raise unusable(message, code="parameter_invalid", param="expand") from None
        return copy.deepcopy(found)


@functools.cache
def is_known(noun: str, key: str) -> bool:
    """Whether stripe-python declares such a key for such an object."""
    if noun not in OBJECT_CLASSES:
        return False
    module, name = OBJECT_CLASSES[noun]
    return key in getattr(importlib.import_module(module), name).__annotations__


def search(rows: list[Object], query: str) -> list[Object]:
    """Those that match a query in Stripe's language: clauses a:"b", m["k"]:"v" or a>1, joined by AND."""
    clauses = re.split(r"\s+AND\s+", query.strip())
    tests = [_clause(clause) for clause in clauses]
    return [row for row in reversed(rows) if all(test(row) for test in tests)]


_CLAUSE = re.compile(r"""^(-?)(\w+)(?:\[["']([^"']+)["']\])?\s*(:|>=|<=|>|<)\s*["']?([^"']*)["']?$""")
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


def _clause(text: str) -> Callable[[Object], bool]:
    match = _CLAUSE.match(text)
    if match is None:
        raise invalid(f"We were unable to parse your search query: {text}", param="query")
    negated, field, key, sign, wanted = match.groups()

    def holds(row: Object) -> bool:
        found = row.get(field)
        if key is not None:
            found = (found or {}).get(key)
        if sign == ":":
            holds = found is not None and str(found) == wanted
        else:
            holds = found is not None and _ORDERS[sign](int(found), int(wanted))
        return holds != bool(negated)

    return holds


def _matches(row: Object, params: Object, by: tuple[str, ...]) -> bool:
    if any(name in params and str(row.get(name)) != str(params[name]) for name in by):
        return False
    return in_range(row["created"], params.get("created"))


def in_range(value: int, wanted: Any) -> bool:
    """Whether a time fits Stripe's filter: a number, or a dict of gt, gte, lt and lte."""
    if wanted is None:
        return True
    if not isinstance(wanted, dict):
        return value == int(wanted)
    signs = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
    for name in wanted:
        if name not in signs:
            raise unusable(f"Received unknown parameter: {name}", code="parameter_unknown", param=f"created[{name}]")
    return all(_ORDERS[signs[name]](value, as_int(wanted, name)) for name in wanted)
