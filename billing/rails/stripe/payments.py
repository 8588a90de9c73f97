"""What customers do at Stripe: cards, payments, refunds and disputes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from billing.rails.stripe.calls import Key, StripeCalls
from billing.rails.stripe.records import CURRENCY, Card, Dispute, EarlyWarning, Intent, Json, Refund, Session


class PaymentCalls(StripeCalls):
    """Money that comes in, and goes back to where it came from."""

    # Customers and cards

    def create_customer(self, owner_id: str, name: str) -> str:
        params = {"name": name, "metadata": {"organisation_id": owner_id}}
        key = Key(f"customer-{owner_id}-{zlib.crc32(name.encode()):x}")  # a key is for one set of parameters
        return self._make(lambda one: str(self._post("/v1/customers", params, key=one)["id"]), key)

    def create_setup_page(self, customer_id: str, *, return_url: str) -> Session:
        params = {
            "mode": "setup",
            "customer": customer_id,
            "allowed_payment_method_types": ["card"],
            "success_url": return_url,
            "cancel_url": return_url,
        }
        return Session.read(self._post("/v1/checkout/sessions", params))

    def list_cards(self, customer_id: str) -> list[Card]:
        params = {"customer": customer_id, "type": "card"}
        return [Card.read(one) for one in self._list("/v1/payment_methods", params)]

    def remove_card(self, card_id: str) -> None:
        self._post(f"/v1/payment_methods/{card_id}/detach", {})

    # Payments

    def create_checkout(self, params: Json, *, key: Key) -> Session:
        """A page to pay on."""
        return self._make(
            lambda one: Session.read(self._post("/v1/checkout/sessions", params, key=one)),
            key,
            find=lambda: self.find_session(params["customer"], params["metadata"]),
        )

    def find_session(self, customer_id: str, metadata: Mapping[str, str]) -> Session | None:
        """The page of this outbox message: two pages for one request could both be paid."""
        params = {"customer": customer_id}
        found = self._first("/v1/checkout/sessions", params, "outbox_id", metadata["outbox_id"])
        return Session.read(found) if found else None

    def fetch_session(self, session_id: str) -> Session:
        return Session.read(self._get(f"/v1/checkout/sessions/{session_id}"))

    def expire_session(self, session_id: str) -> None:
        self._post(f"/v1/checkout/sessions/{session_id}/expire", {})

    def charge_card(
        self, *, customer_id: str, card_id: str, amount_cents: int, metadata: Mapping[str, str], key: Key
    ) -> Intent:
        """Charge a saved card while its owner is away; raises CardDeclined."""
        params = {
            "amount": amount_cents,
            "currency": CURRENCY,
            "customer": customer_id,
            "payment_method": card_id,
            "allowed_payment_method_types": ["card"],
            "off_session": True,
            "confirm": True,
            "capture_method": "automatic",  # the asynchronous default answers before the fee is known
            "metadata": dict(metadata),
            "expand": ["latest_charge.balance_transaction"],
        }
        return self._make(
            lambda one: Intent.read(self._post("/v1/payment_intents", params, key=one)),
            key,
            find=lambda: self.find_intent(customer_id, metadata),
        )

    def find_intent(self, customer_id: str, metadata: Mapping[str, str]) -> Intent | None:
        """The payment of this outbox message. A list, not a search: Stripe's search lags behind."""
        params = {"customer": customer_id}
        found = self._first("/v1/payment_intents", params, "outbox_id", metadata["outbox_id"])
        return self.fetch_intent(found["id"]) if found else None

    def fetch_intent(self, intent_id: str) -> Intent:
        return Intent.read(
            self._get(f"/v1/payment_intents/{intent_id}", {"expand": ["latest_charge.balance_transaction"]})
        )

    def cancel_intent(self, intent_id: str) -> None:
        self._post(f"/v1/payment_intents/{intent_id}/cancel", {})

    # Refunds and disputes

    def refund_charge(self, *, charge_id: str, amount_cents: int, metadata: Mapping[str, str], key: Key) -> Refund:
        params = {"charge": charge_id, "amount": amount_cents, "metadata": dict(metadata)}
        return self._make(
            lambda one: self._read_refund(self._post("/v1/refunds", params, key=one)),
            key,
            find=lambda: self.find_refund(charge_id, metadata),
        )

    def find_refund(self, charge_id: str, metadata: Mapping[str, str]) -> Refund | None:
        found = self._first("/v1/refunds", {"charge": charge_id}, "outbox_id", metadata["outbox_id"])
        return self._read_refund(found) if found else None

    def fetch_refund(self, refund_id: str) -> Refund:
        return self._read_refund(self._get(f"/v1/refunds/{refund_id}"))

    def list_refunds(self, charge_id: str) -> list[Refund]:
        return [self._read_refund(one) for one in self._list("/v1/refunds", {"charge": charge_id})]

    def _read_refund(self, json: Json) -> Refund:
        """With its bookings; the one of a failure is a field that a refund has only once it has failed."""
        names = ("balance_transaction", "failure_balance_transaction")
        bookings = {name: self._get(f"/v1/balance_transactions/{json[name]}") for name in names if json.get(name)}
        return Refund.read({**json, **bookings})

    def fetch_dispute(self, dispute_id: str) -> Dispute:
        return Dispute.read(self._get(f"/v1/disputes/{dispute_id}"))

    def fetch_early_warning(self, warning_id: str) -> EarlyWarning:
        return EarlyWarning.read(self._get(f"/v1/radar/early_fraud_warnings/{warning_id}"))

    def submit_evidence(self, dispute_id: str, *, text: str, product: str, key: Key) -> Dispute:
        """Send our side of the dispute to the bank, once: it cannot be changed afterwards."""
        params = {"evidence": {"uncategorized_text": text, "product_description": product}, "submit": True}
        return self._make(lambda one: Dispute.read(self._post(f"/v1/disputes/{dispute_id}", params, key=one)), key)
