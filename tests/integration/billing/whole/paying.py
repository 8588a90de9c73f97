"""Rules of cards: pages, saved cards, automatic top-ups, refunds, chargebacks, and webhooks as they please."""

from __future__ import annotations

from typing import Any

from django.test import Client
from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing import dispatch
from billing import tasks as _every_handler  # noqa: F401
from billing.errors import AccountFrozen, InsufficientFunds
from billing.fiat import automatic, events, refunds, sweeping, topups
from billing.fiat import customers as payers
from billing.fiat.errors import CardNotFound, RefundRefused, TopUpRefused
from billing.models import StripeEvent, TopUp
from billing.money import MICROS_PER_CENT
from billing.rails.stripe.customers import find_or_create
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import Fault, WebhookFaults
from tests.integration.billing.whole.machine import BillingMachine, customers, taken, which

HOOK = "/api/v1/stripe/webhook"
CENTS = st.integers(500, 15_000)
PATHS = ("/v1/payment_intents*", "/v1/checkout/sessions*", "/v1/refunds*", "/v1/transfers*", "/v1/payouts*", "*")
FAULTS = tuple(fault for fault in Fault if fault is not Fault.SLOW)
CARDS = ("pm_card_visa", "pm_card_visa", "pm_card_chargeDeclined")


_client = Client()


def receive(body: bytes, signature: str) -> int:
    """Our webhook, as Stripe sees it."""
    headers = {"Stripe-Signature": signature}
    return int(_client.post(HOOK, body, content_type="application/json", headers=headers).status_code)


class Paying(BillingMachine):
    """What happens between customers, Stripe and us."""

    def charges(self) -> list[dict[str, Any]]:
        rows = self.world.stripe.store.all("charge")
        return [one for one in rows if one["paid"] and one["payment_intent"]]

    # --- in

    @rule(who=customers, cents=CENTS)
    def ask_for_a_page(self, who: str, cents: int) -> None:
        self.ask(who, cents)
        self.did("ask_for_a_page")

    def ask(self, who: str, cents: int, *, is_saved: bool = False) -> TopUp:
        amount = cents * MICROS_PER_CENT
        return topups.request_top_up(self.owners[who], amount, method="checkout", actor=who, save_card=is_saved)

    @rule(who=customers, cents=CENTS, is_saved=st.booleans())
    def pay_at_once(self, who: str, cents: int, is_saved: bool) -> None:
        """Page, payment, webhook: the usual way, in one step."""
        top_up = self.ask(who, cents, is_saved=is_saved)
        self.make_calls()
        top_up.refresh_from_db()
        if top_up.session_id and self.world.stripe.get(top_up.session_id)["status"] == "open":
            self.world.stripe.pay_session(top_up.session_id)
            self.did("pay_at_once")
        self.world.stripe.deliver(receive)
        self.work_off()

    @rule(number=which, card=st.sampled_from(CARDS))
    def pay_a_page(self, number: int, card: str) -> None:
        pages = self.world.stripe.store.all("checkout.session")
        page = self.pick([one for one in pages if one["status"] == "open"], number)
        if page is not None:
            self.world.stripe.pay_session(page["id"], card)
            self.did("pay_a_page")

    @rule(who=customers)
    def save_card(self, who: str) -> None:
        with self.line_is_good():
            payers.open_setup_page(self.owners[who])
            payer = find_or_create(self.owners[who])
        pages = self.world.stripe.store.all("checkout.session")
        mine = [p for p in pages if (p["mode"], p["status"], p["customer"]) == ("setup", "open", payer)]
        self.world.stripe.pay_session(mine[0]["id"], "pm_card_visa")
        self.did("save_card")

    @rule(who=customers, cents=CENTS)
    def charge_saved_card(self, who: str, cents: int) -> None:
        verb = lambda: topups.request_top_up(  # noqa: E731
            self.owners[who], cents * MICROS_PER_CENT, method="saved_card", actor=who
        )
        self.tries("charge_saved_card", verb, CardNotFound)

    @rule(who=customers, cents=CENTS)
    def set_automatic(self, who: str, cents: int) -> None:
        micros = cents * MICROS_PER_CENT
        more = {"monthly_max": 5 * micros, "is_enabled": True, "actor": who}
        verb = lambda: automatic.set_rule(self.owners[who], threshold=micros, amount=micros, **more)  # noqa: E731
        self.tries("set_automatic", verb, TopUpRefused)

    @rule()
    def run_automatic(self) -> None:
        topups.release_waiting()
        if automatic.run_rules():
            self.did("run_automatic")

    # --- out again

    @rule(number=which, share=st.integers(1, 4))
    def refund(self, number: int, share: int) -> None:
        paid = list(TopUp.objects.filter(state="succeeded").order_by("created_at"))
        top_up = self.pick(paid, number)
        if top_up is None:
            return
        self.ask_back(top_up, int(top_up.amount) * share // 4 // MICROS_PER_CENT * MICROS_PER_CENT)
        least = min(paid, key=lambda one: int(one.amount))  # a balance may well have more than that
        self.ask_back(least, int(least.amount) + MICROS_PER_CENT, what="refund above the payment")
        assert not taken["refund above the payment"]

    def ask_back(self, top_up: TopUp, amount: int, *, what: str = "refund") -> None:
        verb = lambda: refunds.request_refund(top_up.pk, owner_id=top_up.owner_id, actor="x", amount=amount)  # noqa: E731
        self.tries(what, verb, RefundRefused, InsufficientFunds, AccountFrozen)

    @rule(number=which, cents=CENTS)
    def refund_at_stripe(self, number: int, cents: int) -> None:
        """The operator clicks in Stripe's own dashboard."""
        open_ones = [c for c in self.charges() if not c["disputed"] and c["amount"] > c["amount_refunded"]]
        charge = self.pick(open_ones, number)
        if charge is None:
            return
        amount = min(cents, charge["amount"] - charge["amount_refunded"])
        form = f"charge={charge['id']}&amount={amount}"
        answer = self.world.stripe.handle("POST", "/v1/refunds", form, key=self.world.stripe.secret_key)
        if answer.status == 200:
            self.did("refund_at_stripe")

    @rule(number=which)
    def bank_refuses_refund(self, number: int) -> None:
        made = [one for one in self.world.stripe.store.all("refund") if one["status"] == "succeeded"]
        refund = self.pick(made, number)
        if refund is not None:
            self.world.stripe.fail_refund(refund["id"])
            self.did("bank_refuses_refund")

    @rule(number=which, is_inquiry=st.booleans())
    def charge_back(self, number: int, is_inquiry: bool) -> None:
        open_ones = [c for c in self.charges() if not c["disputed"] and c["amount"] > c["amount_refunded"]]
        charge = self.pick(open_ones, number)
        if charge is not None:
            self.world.stripe.open_dispute(charge["id"], is_inquiry=is_inquiry)
            self.did("charge_back")

    @rule(number=which, is_won=st.booleans())
    def bank_decides(self, number: int, is_won: bool) -> None:
        states = {"needs_response", "warning_needs_response"}
        dispute = self.pick([d for d in self.world.stripe.store.all("dispute") if d["status"] in states], number)
        if dispute is not None:
            self.world.stripe.close_dispute(dispute["id"], won=is_won)
            self.did("bank_decides for us" if is_won else "bank_decides against us")

    @rule(cents=CENTS)
    def fund_platform(self, cents: int) -> None:
        self.world.stripe.fund(cents)
        self.did("fund_platform")

    # --- what the network does

    @rule(faults=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), seed=which)
    def deliver(self, faults: tuple[bool, bool, bool, bool], seed: int) -> None:
        """Webhooks arrive twice, late, out of order, mis-signed, or never."""
        duplicate, drop, delay, other = (0.5 if each else 0.0 for each in faults)
        mood = WebhookFaults(
            duplicate=duplicate, drop=drop, delay=delay, missign=other, stale=other, reorder=True, seed=seed
        )
        made = self.world.stripe.deliver(receive, faults=mood)
        for one in made:
            assert (one.status == 200) == (one.fault in {"", "duplicate"}), one
        if made:
            self.did("deliver")

    @rule()
    def work_events_off(self) -> None:
        if self.work_off():
            self.did("work_events_off")

    @rule()
    def poll(self) -> None:
        if events.poll():
            self.did("poll")

    @rule()
    def sweep(self) -> None:
        self.world.advance(1_200)
        if sweeping.sweep():
            self.did("sweep")

    @rule(fault=st.sampled_from(FAULTS), path=st.sampled_from(PATHS))
    def line_goes_bad(self, fault: Fault, path: str) -> None:
        """For one call."""
        self.world.stripe.script(fault, path)
        self.did("line_goes_bad")

    @rule()
    def call(self) -> None:
        if self.make_calls():
            self.did("call")

    def line_is_good(self) -> Any:
        return _GoodLine(self.world.stripe)

    def make_calls(self) -> int:
        """What the outbox's tick does, without the pause after a failure."""
        OutboxMessage.objects.filter(state="waiting").update(next_at=clock.now())
        return dispatch.dispatch_due()

    def work_off(self) -> int:
        StripeEvent.objects.filter(processed_at=None).update(next_at=clock.now())
        return events.process_due()


class _GoodLine:
    """Nothing goes wrong inside; what was to go wrong does so later."""

    def __init__(self, stripe: Any) -> None:
        self._faults = stripe.faults

    def __enter__(self) -> None:
        self._kept, self._faults._scripts = self._faults._scripts, []

    def __exit__(self, *_: object) -> None:
        self._faults._scripts = self._kept
