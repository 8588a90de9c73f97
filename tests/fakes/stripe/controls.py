"""What a test can order of the fake, but not of Stripe: to pay, to dispute, to fail, to count, to deliver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fakes.stripe import accounts, disputes, events, payments, payouts, refunds, sessions, webhooks
from tests.fakes.stripe.books import Books
from tests.fakes.stripe.faults import Fault, Faults
from tests.fakes.stripe.shapes import Object
from tests.fakes.stripe.store import PLATFORM, Store

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Effect:
    """One thing that a call brought about outside, and all that it was marked with: metadata values, its key."""

    noun: str
    object_id: str
    marks: frozenset[str]


class Controls:
    """The controls of FakeStripe, each of which returns a copy of what it changed."""

    seed: int
    webhook_secret: str
    store: Store
    books: Books
    faults: Faults
    events: list[Object]
    effect_log: list[Effect]
    crashes: list[BaseException | None]
    endpoint_secrets: dict[str, str]
    signing_time: Callable[[], int]
    _deliverers: dict[str | webhooks.Receiver, webhooks.Deliverer]
    _lock: threading.RLock

    @property
    def balance(self) -> dict[str, tuple[int, int]]:
        """What the platform has, by currency: (available, pending), in cents."""
        return self.books.sums(PLATFORM)

    def effects(self, outbox_id: object, *, kind: str | None = None) -> int:
        """How many things were brought about outside by calls that carried this id in metadata or as their key."""
        mark = str(outbox_id)
        return sum(mark in effect.marks and kind in {None, effect.noun} for effect in self.effect_log)

    def get(self, object_id: str) -> Object:
        """A copy of an object, whoever has it."""
        with self._lock:
            return self.store.rendered(*self.store.find(object_id))

    def pay_session(self, session_id: str, payment_method: str = "pm_card_visa") -> Object:
        """The customer pays (or saves a card) on the page of this session; returns the session."""
        with self._lock:
            return self.store.rendered(PLATFORM, sessions.pay(self, session_id, payment_method))

    def authenticate(self, intent_id: str, *, succeeds: bool = True) -> Object:
        """The customer answers the bank's question of a payment that is in requires_action."""
        with self._lock:
            account, found = self.store.find(intent_id)
            return self.store.rendered(account, payments.authenticate(self, account, found, succeeds=succeeds))

    def open_dispute(
        self, charge_id: str, *, cents: int | None = None, reason: str = "fraudulent", is_inquiry: bool = False
    ) -> Object:
        """The customer of this charge went to the bank; returns the dispute."""
        with self._lock:
            made = disputes.open_for(self, charge_id, cents=cents, reason=reason, is_inquiry=is_inquiry)
            return self.store.rendered(PLATFORM, made)

    def close_dispute(self, dispute_id: str, *, won: bool) -> Object:
        """The bank has decided."""
        with self._lock:
            return self.store.rendered(PLATFORM, disputes.close(self, dispute_id, won=won))

    def warn_of_fraud(self, charge_id: str, fraud_type: str = "unauthorized_use_of_card") -> Object:
        """The card's bank sends an early fraud warning; returns it."""
        with self._lock:
            return self.store.rendered(PLATFORM, disputes.warn_for(self, charge_id, fraud_type))

    def refresh_warning(self, warning_id: str) -> Object:
        """Stripe looks whether the warned charge was refunded or disputed meanwhile."""
        with self._lock:
            return self.store.rendered(PLATFORM, disputes.refresh_warning(self, warning_id))

    def set_dispute_status(self, dispute_id: str, status: str) -> Object:
        """Stripe gives a dispute another status, and moves no money with it."""
        with self._lock:
            return self.store.rendered(PLATFORM, disputes.set_status(self, dispute_id, status))

    def onboard(self, account_id: str) -> Object:
        """The owner of a connected account has filled everything in; returns the account."""
        with self._lock:
            return self.store.rendered(PLATFORM, accounts.onboard(self, account_id))

    def restrict(self, account_id: str, due: Collection[str] = ("individual.verification.document",)) -> Object:
        """Stripe wants to know more of a connected account, and stops it until it does."""
        with self._lock:
            return self.store.rendered(PLATFORM, accounts.restrict(self, account_id, tuple(due)))

    def stop_payouts(self, account_id: str) -> Object:
        """Stripe sends nothing on to the bank of this account, until it is onboarded again."""
        with self._lock:
            return self.store.rendered(PLATFORM, accounts.stop_payouts(self, account_id))

    def pay_payout(self, payout_id: str) -> Object:
        """The bank has taken it."""
        with self._lock:
            return self.store.rendered(PLATFORM, payouts.pay(self, payout_id))

    def fail_payout(self, payout_id: str, code: str = "account_closed") -> Object:
        """The bank has refused it, or sent it back after all; codes as in payouts.FAILURES."""
        with self._lock:
            return self.store.rendered(PLATFORM, payouts.fail(self, payout_id, code))

    def fund(self, cents: int, currency: str = "usd") -> Object:
        """Money that the operator put into the platform's balance from its own bank; available at once."""
        with self._lock:
            return self.books.book(PLATFORM, "topup", cents, currency, source=self.store.new_id("tu"))

    def move(self, kind: str, cents: int, *, fee: int = 0, balance: str = "payments", source: str = "") -> Object:
        """A change of the platform's balance that no call of ours asked for; `kind` is one of Stripe's types."""
        with self._lock:
            booked = self.books.book(PLATFORM, kind, cents, "usd", source=source or self.store.new_id("xx"), fee=fee)
            booked["balance_type"] = balance
            return booked

    def fail_refund(self, refund_id: str, reason: str = "lost_or_stolen_card") -> Object:
        with self._lock:
            return self.store.rendered(PLATFORM, refunds.fail_refund(self, refund_id, reason))

    def script(self, fault: Fault | str, path: str, times: int = 1, *, method: str = "POST") -> None:
        """The next calls to this path go wrong so; see faults.Fault. A * in the path stands for anything."""
        self.faults.script(fault, path, times=times, method=method)

    def deliver(
        self,
        target: str | webhooks.Receiver,
        *,
        faults: webhooks.WebhookFaults | None = None,
        secret: str = "",
        types: Collection[str] = ("*",),
    ) -> list[webhooks.Delivery]:
        """Send what this receiver (a URL, or a function of body and signature) has not received yet."""
        deliverer = self._deliverers.setdefault(target, webhooks.Deliverer(self))
        receive = webhooks.post_to(target) if isinstance(target, str) else target
        wanted = faults or webhooks.WebhookFaults(seed=self.seed)
        return deliverer.deliver(receive, secret or self.webhook_secret, wanted, tuple(types))

    def deliver_to_endpoints(self, faults: webhooks.WebhookFaults | None = None) -> list[webhooks.Delivery]:
        """The same for every webhook endpoint that was registered through the API."""
        made: list[webhooks.Delivery] = []
        for one in self.store.all("webhook_endpoint"):
            if one["status"] == "enabled":
                secret = self.endpoint_secrets[one["id"]]
                made += self.deliver(one["url"], faults=faults, secret=secret, types=one["enabled_events"])
        return made

    def signed(self, body: bytes | Object, *, at: int | None = None, secret: str = "") -> tuple[bytes, str]:
        """A body and its signature header, for tests that bring events themselves."""
        raw = body if isinstance(body, bytes) else webhooks.body_of(body)
        return raw, events.sign(raw, secret or self.webhook_secret, self.signing_time() if at is None else at)

    def check(self) -> None:
        """The fake's own invariant; raises AssertionError where its balances do not add up."""
        with self._lock:
            if self.crashes:
                raise AssertionError(f"the fake itself failed: {self.crashes!r}")
            for account in self.store.accounts():
                every = self.store.all("balance_transaction", account)
                rows = [row for row in every if row["balance_type"] == "payments"]
                for currency, (available, pending) in self.books.sums(account).items():
                    total = sum(row["amount"] - row["fee"] for row in rows if row["currency"] == currency)
                    if total != available + pending:
                        raise AssertionError(f"{account} {currency}: {total} booked, {available} + {pending} held")
