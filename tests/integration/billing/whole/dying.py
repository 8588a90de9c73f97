"""Processes that die: at seams that are first given what it takes to reach them, and at any write of any tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from unittest import mock

from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing.chain.events import booking, effects
from billing.chain.payout_rail import ChainPayouts
from billing.chain.reading.client import ChainClient
from billing.chain.transactions import planning
from billing.fiat import claims, sweeping
from billing.models import Payout
from billing.payouts import confirming, running
from billing.rails.stripe.payout_rail import StripePayouts
from billing.states import PAYOUT_STATES_OPEN
from marketplace.foundation import outbox
from provider_agent.protocol import id_bytes32
from tests.integration.billing.whole.machine import customers, providers, taken
from tests.integration.billing.whole.paying import receive
from tests.integration.billing.whole.usual import Usual

LEASES_END_SECONDS = 120
REST_ROUNDS_MAX = 4
FLOAT_CENTS = 200_000  # what the platform adds so that no payout waits for it
TOKENS = 50_000_000
WRITES = ("INSERT", "UPDATE", "DELETE", "SELECT * FROM BILLING_")


class Died(BaseException):
    """The process is gone, here and now."""


class Seam(NamedTuple):
    """Where a process dies, before and after what stands there; what it needs to come there, and what it was doing."""

    where: Any
    name: str
    prepare: str
    doing: str


SEAMS: dict[str, Seam] = {
    "a call was made and is not noted": Seam(outbox, "done", "a_call_waits", "make_calls"),
    "payouts are reserved": Seam(running, "enqueue", "pay_is_due", "pay_all"),
    "dollars are at the rail": Seam(StripePayouts, "submit", "dollars_wait", "make_calls"),
    "tokens are at the rail": Seam(ChainPayouts, "submit", "tokens_wait", "make_calls"),
    "an outcome is half booked": Seam(confirming, "advance_all", "dollars_wait", "make_calls"),
    "a root is planned": Seam(planning, "plan", "tokens_wait", "promise"),
    "a payment is credited": Seam(claims, "settle", "a_payment_was_made", "work_off"),
    "a transaction is signed": Seam(ChainClient, "broadcast", "a_hold_waits", "follow"),
    "an event is being booked": Seam(effects, "book", "events_wait", "look"),
    "an event is half booked": Seam(booking.Booking, "post", "events_wait", "look"),
}
DEATHS = tuple(f"die {when}: {seam}" for seam in SEAMS for when in ("before", "after"))
TICKS = ("make_calls", "work_off", "look", "follow", "pay_all", "sweep_all", "pay_out", "release_due")


class Dying(Usual):
    """All of billing, and nothing of it may be lost or done twice when a process dies."""

    @rule(seam=st.sampled_from(sorted(SEAMS)), who=customers, provider=providers, goes_on=st.booleans())
    def die(self, seam: str, who: str, provider: str, goes_on: bool) -> None:
        """Whoever does it dies there, whoever takes it over dies a bit later; a third goes on, at once or some day."""
        where, name, prepare, doing = SEAMS[seam]
        with self.line_is_good():
            getattr(self, prepare)(who, provider)
            for when in ("before", "after"):
                with dying(where, name, is_after=when == "after") as death:
                    self.does(doing)
                taken[f"die {when}: {seam}"] += death.has_come
                self.check_all()
                self.world.advance(LEASES_END_SECONDS)
            if goes_on:
                self.does(doing)

    @rule(doing=st.sampled_from(TICKS), nth=st.integers(1, 40), is_after=st.booleans(), is_good=st.booleans())
    def die_at_a_write(self, doing: str, nth: int, is_after: bool, is_good: bool) -> None:
        """At the nth statement that writes, of whatever there is to do."""
        with dying_at_a_write(nth, is_after=is_after) as death:
            if is_good:
                with self.line_is_good():
                    self.does(doing)
            else:
                self.does(doing)
        if death.has_come:
            if doing == "release_due":
                self.release_due()  # or the naive books would not know what came of it
            self.did("die_at_a_write")
            self.world.advance(LEASES_END_SECONDS)

    def does(self, doing: str) -> None:
        with suppress(Died):
            getattr(self, doing)()

    # --- what they are doing

    def look(self) -> None:
        self.world.town.follow()

    def promise(self) -> None:
        """Tokens go into a root when they are handed over, or else when the chain is looked at."""
        self.make_calls()
        self.look()

    def sweep_all(self) -> None:
        sweeping.sweep()

    # --- what it takes

    def a_call_waits(self, who: str, provider: str) -> None:
        self.make_calls()  # the one that waits shall be the only one
        self.ask(who, 1_000)

    def a_payment_was_made(self, who: str, provider: str) -> None:
        top_up = self.ask(who, 1_000)
        self.make_calls()
        self.work_off()
        top_up.refresh_from_db()
        self.world.stripe.pay_session(top_up.session_id or "")
        self.world.stripe.deliver(receive)

    def events_wait(self, who: str, provider: str) -> None:
        """A deposit that is final, and that nobody has seen."""
        self.follow()
        self.calls("deposit", who, "deposit", TOKENS)
        self.world.confirm()

    def a_hold_waits(self, who: str, provider: str) -> None:
        self.calls("deposit", who, "deposit", TOKENS)
        self.follow()
        self.open_hold(who, provider, 1, 1)

    def pay_is_due(self, who: str, provider: str) -> None:
        self.earn(who, provider, is_token=False)

    def dollars_wait(self, who: str, provider: str) -> None:
        self.earn(who, provider, is_token=False)
        self.pay_now(provider, False)

    def tokens_wait(self, who: str, provider: str) -> None:
        self.earn(who, provider, is_token=True)
        self.pay_now(provider, True)

    def earn(self, who: str, provider: str, *, is_token: bool) -> None:
        """This provider can be paid now: it has earned, Stripe takes it, and nothing of before is on its way."""
        self.calls("buy_credits", who, "buyCredits", id_bytes32(self.owners[who]), TOKENS)
        self.follow()
        self.thaw(self.owners[who], self.owners[provider])
        if not is_token:
            self.exchange(who, TOKENS // 2, 1, 1, True)
        self.job_that_pays(who, provider, is_token)
        self.windows_pass()
        self.world.stripe.fund(FLOAT_CENTS)
        self.join(provider)
        self.listen()
        asset = self.assets[is_token]
        under_way = Payout.objects.filter(
            provider_id=self.owners[provider], asset_id=asset, state__in=PAYOUT_STATES_OPEN
        )
        for _ in range(REST_ROUNDS_MAX):
            if not under_way.exists():
                return
            self.pay_out()

    def pay_out(self) -> None:
        """A tick of what payouts wait for."""
        self.make_calls()
        self.follow()
        self.follow_payouts()


class Death:
    """Whether it has come."""

    def __init__(self) -> None:
        self.has_come = False

    def comes(self, name: str) -> None:
        self.has_come = True
        raise Died(name)


@contextmanager
def dying(where: Any, name: str, *, is_after: bool) -> Iterator[Death]:
    """The next call to this function kills whoever makes it."""
    real, death = getattr(where, name), Death()

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if death.has_come:
            return real(*args, **kwargs)
        if not is_after:
            death.comes(name)
        result = real(*args, **kwargs)
        death.comes(name)
        return result

    with mock.patch.object(where, name, deadly):
        yield death


@contextmanager
def dying_at_a_write(nth: int, *, is_after: bool) -> Iterator[Death]:
    """The nth statement that writes kills whoever sends it."""
    death, writes = Death(), [0]

    def deadly(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        writes[0] += sql.lstrip().upper().startswith(WRITES)
        if death.has_come or writes[0] != nth:
            return execute(sql, params, many, context)
        if not is_after:
            death.comes(sql)
        execute(sql, params, many, context)
        return death.comes(sql)

    with connection.execute_wrapper(deadly):
        yield death
