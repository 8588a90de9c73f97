"""P18, P19 and the fiat half of P20, over real HTTP against the fake: whatever the network does, money is where it is.

P18  any permutation and duplication of the webhook stream gives the same final state
P19  every outbox row has at most one effect at Stripe, and in the end exactly one
P20  what Stripe's books say we have is what the ledger says
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test import Client, override_settings
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import holds
from billing.errors import AccountFrozen, InsufficientFunds
from billing.fiat import accounts, events, refunds, sweeping
from billing.fiat.errors import RefundRefused
from billing.models import Account, CardDispute, Payout, StripeEvent, TopUp, TopUpRefund
from billing.models.ledger import USD_ASSET_ID
from billing.money import MICROS_PER_CENT
from billing.rails.errors import RailError
from billing.rails.payouts import Fate
from billing.rails.stripe.payout_rail import StripePayouts
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe, Fault, WebhookFaults, start_fake
from tests.integration.billing.fiat import scenes

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600)]

EXAMPLES: Final = settings(
    max_examples=int(os.environ.get("SOUK_EXAMPLES", "8")),
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SETTLING_ROUNDS_MAX: Final = 12
FAULTY_ROUNDS: Final = 6
HOOK: Final = "/api/v1/stripe/webhook"
# Slow is no fault for the books, and an early refusal has no outcome that could be unknown; all others are.
FAULTS: Final = tuple(fault for fault in Fault if fault is not Fault.SLOW)
BAD_NETWORK: Final = WebhookFaults(duplicate=0.5, drop=0.2, delay=0.4, missign=0.2, stale=0.2, reorder=True)


@contextmanager
def fresh_world(seed: int = 0) -> Iterator[FakeStripe]:
    """A Stripe and a database of one example's own: nothing of it is left afterwards."""
    with start_fake(seed) as stripe, transaction.atomic():
        stripe.clock.move_to(int(time.time()))
        stripe.silence_seconds = 0.02  # then the line is cut: to the caller as unknown as its own timeout, and quicker
        keys: dict[str, Any] = {
            "SOUK_STRIPE_KEY": stripe.secret_key,
            "SOUK_STRIPE_API_BASE": stripe.url,
            "SOUK_STRIPE_WEBHOOK_SECRETS": [stripe.webhook_secret],
            "SOUK_TOP_UP_NEW_USD_DAY_MAX": 10_000_000,
            "SOUK_TOP_UP_USD_DAY_MAX": 10_000_000,
        }
        with override_settings(**keys):
            yield stripe
            stripe.check()
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        transaction.set_rollback(True)


@dataclass
class Scenario:
    """What happens at Stripe, step by step; our side learns of it by webhooks only."""

    stripe: FakeStripe
    alice: UUID = field(default_factory=uuid4)
    top_ups: list[TopUp] = field(default_factory=list)

    def do(self, verb: str, which: int, cents: int) -> None:
        getattr(self, verb)(which, cents)

    def pay(self, which: int, cents: int) -> None:
        top_up = self.open_page(which, cents)
        self.stripe.pay_session(top_up.session_id)

    def pay_after_a_decline(self, which: int, cents: int) -> None:
        top_up = self.open_page(which, cents)
        self.stripe.pay_session(top_up.session_id, "pm_card_chargeDeclined")
        self.stripe.pay_session(top_up.session_id)

    def open_page(self, which: int, cents: int) -> TopUp:
        top_up = scenes.ask(self.alice, cents * MICROS_PER_CENT)
        scenes.call_until_done()
        top_up.refresh_from_db()
        self.top_ups.append(top_up)
        return top_up

    def let_pages_expire(self, which: int, cents: int) -> None:
        self.stripe.clock.advance(25 * 3600)

    def refund_at_stripe(self, which: int, cents: int) -> None:
        """The operator clicks in Stripe's own dashboard."""
        charge = self._charge(which)
        if charge and not charge["disputed"] and charge["amount"] > charge["amount_refunded"]:
            amount = min(cents, charge["amount"] - charge["amount_refunded"])
            self._ask("/v1/refunds", f"charge={charge['id']}&amount={amount}")

    def bank_refuses_refund(self, which: int, cents: int) -> None:
        for refund in self.stripe.store.all("refund"):
            if refund["status"] == "succeeded":
                self.stripe.fail_refund(refund["id"])
                return

    def dispute(self, which: int, cents: int) -> None:
        charge = self._charge(which)
        if charge and not charge["disputed"] and charge["amount"] > charge["amount_refunded"]:
            self.stripe.open_dispute(charge["id"], is_inquiry=cents % 3 == 0)

    def win(self, which: int, cents: int) -> None:
        self._decide(won=True)

    def lose(self, which: int, cents: int) -> None:
        self._decide(won=False)

    def operator_moves_money(self, which: int, cents: int) -> None:
        self.stripe.fund(cents)

    def _decide(self, *, won: bool) -> None:
        for dispute in self.stripe.store.all("dispute"):
            if dispute["status"] in {"needs_response", "warning_needs_response"}:
                self.stripe.close_dispute(dispute["id"], won=won)
                return

    def _charge(self, which: int) -> dict[str, Any] | None:
        paid = [one for one in self.stripe.store.all("charge") if one["paid"]]
        return paid[which % len(paid)] if paid else None

    def _ask(self, path: str, form: str) -> None:
        answer = self.stripe.handle("POST", path, form, key=self.stripe.secret_key)
        assert answer.status == 200, answer.body


VERBS: Final = (
    "pay",
    "pay",
    "pay_after_a_decline",
    "open_page",
    "let_pages_expire",
    "refund_at_stripe",
    "bank_refuses_refund",
    "dispute",
    "win",
    "lose",
    "operator_moves_money",
)
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(VERBS), st.integers(0, 3), st.integers(500, 40_000)), min_size=1, max_size=8
)


def receiver() -> Callable[[bytes, str], int]:
    """Our webhook, as Stripe sees it."""
    client = Client()

    def receive(body: bytes, signature: str) -> int:
        answer = client.post(HOOK, body, content_type="application/json", headers={"Stripe-Signature": signature})
        return int(answer.status_code)

    return receive


def settle_down() -> None:
    """Until nothing waits any more."""
    for _ in range(SETTLING_ROUNDS_MAX):
        scenes.work_off(1)
        scenes.call_due()
        if not StripeEvent.objects.filter(processed_at=None).exists():
            break
    stuck = StripeEvent.objects.exclude(outcome__in=["handled", "ignored"]).values_list("type", "error")
    assert list(stuck) == []


def final_state(scenario: Scenario) -> dict[str, Any]:
    """Everything that must not depend on the order of events, without ids and times."""
    sums = {
        (account.kind, account.owner_id == scenario.alice): ledger.balance(account.owner_id, AccountKind(account.kind))
        for account in Account.objects.all()
    }
    return {
        "top-ups": [_row(one, "amount", "state", "fee", "tax") for one in TopUp.objects.order_by("created_at")],
        "refunds": sorted(_row(one, "amount", "state") for one in TopUpRefund.objects.all()),
        "disputes": sorted(_row(one, "amount", "state", "loss") for one in CardDispute.objects.all()),
        "frozen": sorted(Account.objects.filter(is_frozen=True).values_list("kind", flat=True)),
        "balances": {name: amount for name, amount in sums.items() if amount},
    }


def _row(found: Any, *names: str) -> tuple[str, ...]:
    return tuple(str(getattr(found, name)) for name in names)


def outcome_of(steps: Sequence[tuple[str, int, int]], network: WebhookFaults | None, seed: int) -> dict[str, Any]:
    """The final state of a sequence, reported step by step in order, or by a bad network and the poller in the end."""
    with fresh_world() as stripe:
        scenario, receive = Scenario(stripe), receiver()
        for number, step in enumerate(steps):
            scenario.do(*step)
            faults = network and WebhookFaults(**{**vars(network), "seed": seed + number})
            for delivery in stripe.deliver(receive, faults=faults):
                assert (delivery.status == 200) == (delivery.fault in {"", "duplicate"}), delivery
            if network is None or (seed + number) % 2:
                settle_down()
        if network is None:
            stripe.deliver(receive)
        events.poll()
        settle_down()
        sweeping.sweep()
        scenes.assert_same_books(stripe)
        return final_state(scenario)


# What was found once: a freeze, or money, is reported before what it is about.
FUNDED: Final = ("operator_moves_money", 0, 40_000)
REFUND_AND_DISPUTE: Final = [
    FUNDED,
    ("pay", 0, 9_001),
    ("pay", 0, 8_000),
    ("dispute", 0, 10_000),
    ("refund_at_stripe", 1, 8_000),
]
LOST_AND_PAID: Final = [("pay", 0, 8_300), ("dispute", 0, 10_000), ("lose", 0, 0), ("pay", 0, 9_000)]
WON_WHILE_IT_WAITED: Final = [("pay", 0, 30_000), ("dispute", 0, 10_000), ("win", 0, 0)]
ALL_AT_ONCE: Final = [*REFUND_AND_DISPUTE, ("lose", 0, 0), ("bank_refuses_refund", 0, 0), ("pay", 0, 9_000)]


@EXAMPLES
@example(steps=REFUND_AND_DISPUTE, seed=1)
@example(steps=REFUND_AND_DISPUTE, seed=2)
@example(steps=LOST_AND_PAID, seed=3)
@example(steps=LOST_AND_PAID, seed=4)
@example(steps=WON_WHILE_IT_WAITED, seed=5)
@example(steps=WON_WHILE_IT_WAITED, seed=6)
@example(steps=ALL_AT_ONCE, seed=7)
@example(steps=ALL_AT_ONCE, seed=8)
@given(steps=STEPS, seed=st.integers(0, 10_000))
def test_p18_any_stream_of_webhooks_ends_in_the_same_state(steps: Any, seed: int) -> None:
    assert outcome_of(steps, BAD_NETWORK, seed) == outcome_of(steps, None, seed)


@contextmanager
def bad_line(stripe: FakeStripe, faults: Sequence[Fault], probability: float) -> Iterator[None]:
    """Every call to change something may go wrong; in the end the line is good again."""
    stripe.faults.at_random(probability, faults)
    yield
    stripe.faults.clear()


def call_badly(stripe: FakeStripe, faults: Sequence[Fault], probability: float, *, day_passes: bool) -> None:
    """Make the calls that wait over a bad line, perhaps for more than a day, then over a good one."""
    with bad_line(stripe, faults, probability):
        for number in range(FAULTY_ROUNDS):
            scenes.call_due()
            if day_passes and number == FAULTY_ROUNDS // 2:
                stripe.clock.advance(25 * 3600)
                OutboxMessage.objects.update(created_at=F("created_at") - timedelta(hours=25))
    scenes.call_until_done()
    assert not OutboxMessage.objects.exclude(state=OutboxMessage.State.DONE).exists()


LINES: Final = {
    "faults": st.lists(st.sampled_from(FAULTS), min_size=1, max_size=4, unique=True),
    "probability": st.sampled_from([0.3, 0.6, 1.0]),
    "day_passes": st.booleans(),
    "seed": st.integers(0, 10_000),
}


@EXAMPLES
@given(**LINES)
def test_p19_a_saved_card_is_charged_once(faults: Any, probability: float, day_passes: bool, seed: int) -> None:
    with fresh_world(seed) as stripe:
        alice = uuid4()
        scenes.save_card(stripe, alice)
        top_up = scenes.ask(alice, method="saved_card")
        message = OutboxMessage.objects.get()
        call_badly(stripe, faults, probability, day_passes=day_passes)
        top_up.refresh_from_db()
        made = stripe.effects(message.pk, kind="payment_intent")
        # Nobody is charged for a request of yesterday; whoever was charged is credited.
        assert (top_up.state, made) in {("succeeded", 1), *([("expired", 0)] if day_passes else [])}
        assert scenes.available(alice) == (top_up.amount if made else 0)
        scenes.receive_events(stripe)
        scenes.assert_same_books(stripe)


@EXAMPLES
@given(**LINES)
def test_p19_a_page_is_paid_once(faults: Any, probability: float, day_passes: bool, seed: int) -> None:
    """The customer's first top-up: Stripe has to learn of the customer, and to make the page."""
    with fresh_world(seed) as stripe:
        alice = uuid4()
        top_up = scenes.ask(alice)
        call_badly(stripe, faults, probability, day_passes=day_passes)
        top_up.refresh_from_db()
        is_open = stripe.get(top_up.session_id)["status"] == "open"  # it may have waited for more than its day
        assert is_open or day_passes
        if is_open:
            stripe.pay_session(top_up.session_id)
        scenes.receive_events(stripe)
        top_up.refresh_from_db()
        assert top_up.state == ("succeeded" if is_open else "expired")
        assert sum(one["paid"] for one in stripe.store.all("charge")) == is_open
        assert scenes.available(alice) == (top_up.amount if is_open else 0)
        scenes.assert_same_books(stripe)


@EXAMPLES
@given(**LINES, cents=st.integers(1, 5_000))
def test_p19_a_refund_is_made_once(faults: Any, probability: float, day_passes: bool, seed: int, cents: int) -> None:
    with fresh_world(seed) as stripe:
        alice = uuid4()
        stripe.fund(1_000)  # the fees, so that the whole can be refunded
        top_up = scenes.pay_in(stripe, alice)
        refund = refunds.request_refund(top_up.pk, owner_id=alice, actor="alice", amount=cents * MICROS_PER_CENT)
        message = OutboxMessage.objects.get(kind=refunds.CALL)
        call_badly(stripe, faults, probability, day_passes=day_passes)
        scenes.receive_events(stripe)
        refund.refresh_from_db()
        assert (refund.state, stripe.effects(message.pk, kind="refund")) == ("succeeded", 1)
        assert scenes.available(alice) == top_up.amount - refund.amount
        sweeping.book_own_moves()
        scenes.assert_same_books(stripe)


@EXAMPLES
@example(faults=[Fault.ERROR_AFTER], probability=1.0, day_passes=False, seed=1)
@example(faults=[Fault.ERROR_AFTER], probability=1.0, day_passes=True, seed=2)
@given(**LINES)
def test_p19_a_providers_account_is_made_once(faults: Any, probability: float, day_passes: bool, seed: int) -> None:
    with fresh_world(seed) as stripe:
        bob = uuid4()
        accounts.request_account(bob, country="US", email="bob@example.com")
        call_badly(stripe, faults, probability, day_passes=day_passes)
        made = [one["id"] for one in stripe.store.all("account")]
        assert made == [accounts.find(bob).stripe_id]


@EXAMPLES
@given(**LINES, cents=st.integers(1, 5_000))
def test_p19_a_provider_is_paid_once(faults: Any, probability: float, day_passes: bool, seed: int, cents: int) -> None:
    with fresh_world(seed) as stripe:
        bob = uuid4()
        accounts.request_account(bob, country="US")
        scenes.call_until_done()
        account = accounts.find(bob)
        stripe.onboard(account.stripe_id or "")
        scenes.receive_events(stripe)
        stripe.fund(10_000)
        open_account(AccountKind.PROVIDER_AVAILABLE, bob)  # and the dollar with it
        payout = Payout.objects.create(
            provider_id=bob,
            rail="stripe",
            asset_id=USD_ASSET_ID,
            amount=cents * MICROS_PER_CENT,
            destination=account.stripe_id or "",
        )
        with bad_line(stripe, faults, probability):
            for number in range(FAULTY_ROUNDS):
                _submit(payout)
                if day_passes and number == FAULTY_ROUNDS // 2:
                    stripe.clock.advance(25 * 3600)
        fates = [_submit(payout) for _ in range(2)]
        assert fates == [Fate.CONFIRMED] * 2
        assert stripe.effects(payout.pk, kind="transfer") == 1
        assert stripe.effects(payout.pk, kind="payout") == 1
        assert sum(stripe.books.sums(account.stripe_id or "")["usd"]) == 0


def _submit(payout: Payout) -> Fate | None:
    try:
        return StripePayouts().submit([payout])[str(payout.pk)].fate
    except RailError:
        return None


BUSY_VERBS: Final = (*VERBS, "spend", "refund_ours", "sweep", "charge_saved_card")


@EXAMPLES
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(BUSY_VERBS), st.integers(0, 3), st.integers(500, 40_000)), min_size=3, max_size=12
    ),
    seed=st.integers(0, 10_000),
    probability=st.sampled_from([0.0, 0.2, 0.5]),
)
def test_p20_stripes_books_and_ours_say_the_same(steps: Any, seed: int, probability: float) -> None:
    """With our own calls over a bad line, a customer who spends, and a webhook that cannot be relied on."""
    with fresh_world(seed) as stripe:
        scenario, receive = BusyScenario(stripe), receiver()
        scenes.save_card(stripe, scenario.alice)
        for number, step in enumerate(steps):
            with bad_line(stripe, FAULTS, probability):
                scenario.do(*step)
                scenes.call_due()
            stripe.deliver(receive, faults=WebhookFaults(**{**vars(BAD_NETWORK), "seed": seed + number}))
            if (seed + number) % 2:
                scenes.work_off(1)
        scenes.call_until_done()
        events.poll()
        settle_down()
        sweeping.sweep()
        settle_down()
        scenes.assert_same_books(stripe)


class BusyScenario(Scenario):
    """The same, and what we do ourselves meanwhile."""

    def spend(self, which: int, cents: int) -> None:
        with suppress(InsufficientFunds, AccountFrozen):
            holds.place_hold(owner_id=self.alice, job_id=uuid4(), amount=cents * MICROS_PER_CENT)

    def refund_ours(self, which: int, cents: int) -> None:
        if self.top_ups:
            with suppress(RefundRefused, InsufficientFunds, AccountFrozen):
                refunds.request_refund(self.top_ups[which % len(self.top_ups)].pk, owner_id=self.alice, actor="alice")

    def charge_saved_card(self, which: int, cents: int) -> None:
        self.top_ups.append(scenes.ask(self.alice, cents * MICROS_PER_CENT, method="saved_card"))

    def sweep(self, which: int, cents: int) -> None:
        TopUp.objects.update(created_at=clock.now() - timedelta(hours=1))
        sweeping.sweep()

    def open_page(self, which: int, cents: int) -> TopUp:
        with_faults = self.stripe.faults.probability
        self.stripe.faults.probability = 0.0
        top_up = super().open_page(which, cents)
        self.stripe.faults.probability = with_faults
        return top_up
