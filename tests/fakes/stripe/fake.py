"""A Stripe of one's own: real HTTP, real state, and controls for what tests cannot do with the real one.

A call goes this way: authentication, fault before the effect, route, idempotency key, parameters, endpoint, store under
the key, fault after the effect. One lock around all of it: calls happen one after another, as at Stripe on one object.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.fakes.stripe import books, charges, disputes, forms, payouts, refunds, routes, sessions, webhooks
from tests.fakes.stripe import transfers as _transfers  # noqa: F401 - for its routes
from tests.fakes.stripe.clock import FakeClock
from tests.fakes.stripe.controls import Controls, Effect
from tests.fakes.stripe.errors import WireError, broken, invalid, missing, unauthorized, unrouted
from tests.fakes.stripe.faults import Fault, Faults
from tests.fakes.stripe.idempotency import Answer, Idempotency
from tests.fakes.stripe.routes import Call
from tests.fakes.stripe.server import Server, failure
from tests.fakes.stripe.shapes import API_VERSION, Object, event
from tests.fakes.stripe.store import PLATFORM, Store, search

SEARCH_LAG_SECONDS: Final = 60
_EARLY: Final = {
    Fault.UNAVAILABLE: (503, "api_error", "Stripe is temporarily unavailable.", ""),
    Fault.RATE_LIMITED: (429, "invalid_request_error", "Request rate limit exceeded.", "rate_limit"),
    Fault.KEY_IN_USE: (
        409,
        "idempotency_error",
        "There is currently another in-progress request using this Idempotent Key.",
        "idempotency_key_in_use",
    ),
}


class FakeStripe(Controls):
    """One platform account with whatever is connected to it."""

    def __init__(self, seed: int = 0, *, clock: FakeClock | None = None) -> None:
        self.seed = seed
        self.secret_key = f"sk_test_fake{seed:08d}"
        self.webhook_secret = f"whsec_fake{seed:08d}"
        self.clock = clock or FakeClock()
        self.store = Store(seed, self.clock.now)
        self.books = books.Books(self.store, self.clock.now)
        self.faults = Faults(seed)
        self.events: list[Object] = []
        self.effect_log: list[Effect] = []
        self.requests: list[tuple[str, str, Object]] = []  # method, path, parameters; in order of arrival
        self.crashes: list[BaseException | None] = []
        # What tests may set.
        self.availability_seconds = books.AVAILABLE_AFTER_SECONDS
        self.search_lag_seconds = SEARCH_LAG_SECONDS
        self.silence_seconds = 5.0  # how long a caller who does not give up waits for nothing
        self.slow_seconds = 0.5
        self.tax_basis_points = 0
        self.dispute_fee_cents = disputes.FEE_CENTS
        self.is_dispute_fee_returned = False  # when a dispute is won; it has been so at times and places
        self.signing_time: Callable[[], int] = lambda: int(time.time())  # receivers compare with their own clock
        # What is remembered beside the objects.
        self.deleted: set[str] = set()
        self.gone_methods: set[str] = set()
        self.session_params: dict[str, Object] = {}
        self.endpoint_secrets: dict[str, str] = {}
        self._deliverers: dict[str | webhooks.Receiver, webhooks.Deliverer] = {}
        self._later: list[Callable[[], object]] = []
        self._idempotency = Idempotency()
        self._lock = threading.RLock()
        self._server = Server(self)
        self.clock.watch(self._fall_due)
        self.store.includable[("charge", "refunds")] = lambda account, row: charges.refunds_of(self, account, row)
        self.store.includable[("checkout.session", "line_items")] = lambda account, row: sessions.line_items_of(
            self, account, row
        )

    # Reaching it

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()

    def handle(
        self,
        method: str,
        path: str,
        raw: str,
        *,
        key: str,
        account: str = "",
        idempotency_key: str = "",
        version: str = "",
        fault: Fault | None = None,
    ) -> Answer:
        """Answer one call; every error becomes an answer."""
        with self._lock:
            call = Call(method, path, {}, account or PLATFORM, idempotency_key, self.store.new_id("req", 20))
            try:
                self._check(call, key, version)
                if fault in _EARLY:
                    status, kind, message, code = _EARLY[fault]
                    raise WireError(status, kind, message, code=code, is_stored=False)
                return self._execute(call, raw, fault)
            except WireError as error:
                return failure(error, call.request_id)
            except Exception as error:  # a mistake of the fake's own: `check` reports it to the test
                self.crashes.append(error)
                return failure(broken(), call.request_id)

    def _check(self, call: Call, key: str, version: str) -> None:
        if key != self.secret_key:
            raise unauthorized(key)
        if version and version != API_VERSION:
            raise invalid(f"Invalid Stripe API version: {version}; this fake is of {API_VERSION}.", is_stored=False)
        if not self.store.has_account(call.account):
            message = (
                f"The provided key does not have access to account '{call.account}' (or that account does not exist)."
            )
            raise WireError(403, "invalid_request_error", message, code="account_invalid", is_stored=False)

    def _execute(self, call: Call, raw: str, fault: Fault | None) -> Answer:
        found = routes.find_route(call.method, call.path)
        if found is None:
            raise unrouted(call.method, call.path)
        if call.method != "POST":
            call.idempotency_key = ""  # Stripe ignores it: reading twice is no harm
        if fault in {Fault.TIMEOUT_BEFORE, Fault.RESET_BEFORE}:
            return Answer(0, {}, call.request_id)
        if call.idempotency_key:
            stored = self._idempotency.find(call, raw, self.clock.now())
            if stored is not None:
                return stored
        result = failure(broken(), call.request_id)
        if fault is not Fault.ERROR_BEFORE:
            result = self._answer(call, raw, *found)
            if fault is Fault.ERROR_AFTER:
                result = failure(broken(), call.request_id)
        self._idempotency.keep(call, raw, self.clock.now(), result)
        return result

    def _answer(self, call: Call, raw: str, found: routes.Route, names: dict[str, str]) -> Answer:
        call.params = forms.decode(raw)
        self.requests.append((call.method, call.path, dict(call.params)))
        marks = frozenset({*_metadata_values(call.params), call.idempotency_key} - {""})
        try:
            body = routes.answer(self, found, names, call)
        except WireError as error:
            if not error.is_stored:
                raise
            return failure(error, call.request_id)
        if found.noun:
            self.effect_log.append(Effect(found.noun, body.get("id", ""), marks))
        return Answer(200, body, call.request_id)

    # For endpoints

    def emit(self, kind: str, found: Object, call: Call | None = None, *, account: str = "") -> Object:
        """Write an event down, with the object as it is now."""
        account = account or self.store.find(found["id"])[0] if found.get("id") else account
        request = {"id": call.request_id or None, "idempotency_key": call.idempotency_key or None} if call else None
        made = event() | {
            "id": self.store.new_id("evt"),
            "created": self.clock.now(),
            "data": {"object": self.store.rendered(account, found)},
            "livemode": False,
            "request": request or {"id": None, "idempotency_key": None},
            "type": kind,
        }
        if account not in {PLATFORM, ""}:
            made["account"] = account
        self.events.append(made)
        return made

    def search(self, call: Call, noun: str) -> Object:
        """Stripe's search: newest first, and blind to what is younger than its index."""
        if "query" not in call.params:
            raise missing("query")
        newest = self.clock.now() - self.search_lag_seconds
        rows = [row for row in self.store.all(noun, call.account) if row["created"] <= newest]
        found = search(rows, call.params["query"])
        limit = forms.as_int(call.params, "limit", 10, minimum=1)
        start = int(call.params.get("page") or 0)
        has_more = len(found) > start + limit
        shown = {
            "object": "search_result",
            "url": call.path,
            "has_more": has_more,
            "data": found[start : start + limit],
        }
        return shown | {"next_page": str(start + limit) if has_more else None}

    def choose_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            return self.faults.choose(method, path)

    def later(self, action: Callable[[], object]) -> None:
        """Do this when the clock next moves."""
        self._later.append(action)

    def _fall_due(self) -> None:
        with self._lock:
            self.books.settle()
            actions, self._later = self._later, []
            for action in actions:
                action()
            sessions.expire_due(self)
            payouts.move_on(self)
            disputes.lose_unanswered(self)
            refunds.settle_refunds(self)


def _metadata_values(params: Any) -> Iterator[str]:
    """Every value of every `metadata` in the parameters, however deep."""
    if isinstance(params, dict):
        for name, value in params.items():
            if name == "metadata" and isinstance(value, dict):
                yield from (str(one) for one in value.values())
            else:
                yield from _metadata_values(value)
    elif isinstance(params, list):
        for one in params:
            yield from _metadata_values(one)


@contextmanager
def start_fake(seed: int = 0) -> Iterator[FakeStripe]:
    """A fake Stripe on loopback for as long as the block lasts."""
    fake = FakeStripe(seed)
    fake.start()
    try:
        yield fake
    finally:
        fake.close()
