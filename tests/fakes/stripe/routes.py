"""Which function answers which call, and that a call names only parameters which stripe-python knows."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.fakes.stripe.errors import unusable
from tests.fakes.stripe.shapes import Object
from tests.fakes.stripe.store import PLATFORM

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe


@dataclass
class Call:
    """One request, decoded: whose account it is about, and what it wants."""

    method: str
    path: str
    params: Object
    account: str = PLATFORM
    idempotency_key: str = ""
    request_id: str = ""

    @property
    def is_connected(self) -> bool:
        return self.account != PLATFORM


Endpoint = Callable[..., Object]


@dataclass(frozen=True)
class Route:
    method: str
    pattern: re.Pattern[str]
    endpoint: Endpoint
    accepts: str
    also: tuple[str, ...]
    noun: str  # what it makes outside: an effect; empty for what only reads or notes

    def check(self, params: Object) -> None:
        """Refuse what Stripe would not know."""
        known = _known(self.accepts) | {"expand", *self.also} if self.accepts else None
        for name in params:
            if known is not None and name not in known:
                raise unusable(f"Received unknown parameter: {name}", code="parameter_unknown", param=name)


_routes: Final[list[Route]] = []


def route(
    method: str, path: str, accepts: str = "", *, also: tuple[str, ...] = (), makes: str = ""
) -> Callable[[Endpoint], Endpoint]:
    """Register an endpoint; `accepts` names the class of its parameters in stripe.params, `also` what that lacks."""
    pattern = re.compile("^" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "$")

    def register(endpoint: Endpoint) -> Endpoint:
        _routes.append(Route(method, pattern, endpoint, accepts, also, makes))
        return endpoint

    return register


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    # Fixed paths such as /v1/payment_intents/search before those with a name in them.
    for candidate in sorted(_routes, key=lambda one: one.pattern.pattern.count("?P<")):
        match = candidate.pattern.match(path)
        if candidate.method == method and match is not None:
            return candidate, match.groupdict()
    return None


def answer(stripe: FakeStripe, found: Route, names: dict[str, str], call: Call) -> Object:
    """Do what the call requests; the answer is a copy with the requested expansions."""
    found.check(call.params)
    paths: Any = call.params.pop("expand", [])
    result = found.endpoint(stripe, call, **names)
    return stripe.store.rendered(call.account, result, paths if isinstance(paths, list) else [paths])


@functools.cache
def _known(name: str) -> frozenset[str]:
    module, _, attribute = ("stripe.params." + name).rpartition(".")
    options = {
        "api_key",
        "stripe_version",
        "stripe_account",
        "stripe_context",
        "max_network_retries",
        "idempotency_key",
    }
    annotations = getattr(importlib.import_module(module), attribute).__annotations__
    return frozenset(annotations) - options
