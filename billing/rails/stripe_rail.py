"""The only module that knows Stripe's library: typed calls in our words, each with a timeout and a pinned version.

Nothing is retried in here: whoever calls does so from the outbox, which tries again with a growing pause. Each call
that creates something takes a `Key`, which makes its repetition harmless:

    1. asked before, or long ago?   look it up; what is found is the answer
    2. create, under the key
    3. the stored answer is of no use (a 500, or a balance that was short then)?   look it up, else take the next key
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeVar

import stripe
from django.conf import settings

from billing.rails.base import RailError
from billing.rails.stripe_records import (
    CURRENCY,
    BankPayout,
    Booking,
    Card,
    CardDeclined,
    Connected,
    Dispute,
    EventRecord,
    Intent,
    Json,
    Moved,
    Refund,
    Reversal,
    Session,
    StripeBusy,
    StripeMissing,
    StripeRefused,
    StripeUnknown,
)
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage

API_VERSION: Final = "2026-10-28.endive"
TIMEOUT_SECONDS: Final = (5.0, 20.0)  # to connect, to read; well below an outbox lease
SIGNATURE_SECONDS: Final = 300
KEY_HOURS_MAX: Final = 23  # Stripe forgets keys after 24
KEYS_MAX: Final = 24  # for one wish, where each one's stored answer is of no use; Stripe forgets them after a day
PASSING: Final = frozenset({"balance_insufficient"})  # refusals that time may heal, and that Stripe repeats from memory
PAGES_MAX: Final = 100
PAGE_SIZE: Final = 100

T = TypeVar("T")
log = logging.getLogger(__name__)


class NotConfigured(RailError):
    """This marketplace has no key for Stripe."""


@dataclass(frozen=True)
class Key:
    """What makes a call happen once: `text` for Stripe, and whether to look before asking."""

    text: str
    is_repeat: bool = False

    @classmethod
    def of(cls, message: OutboxMessage) -> Key:
        """The outbox message's own; after the first attempt, or near the end of Stripe's memory, one looks first."""
        is_old = message.created_at < clock.now() - timedelta(hours=KEY_HOURS_MAX)
        return cls(str(message.pk), is_repeat=message.attempts > 1 or is_old)


def is_configured() -> bool:
    return bool(settings.SOUK_STRIPE_KEY)


def door() -> StripeDoor:
    """The way to Stripe; raises NotConfigured."""
    if not is_configured():
        raise NotConfigured("SOUK_STRIPE_KEY is not set.")
    return _door(settings.SOUK_STRIPE_KEY, settings.SOUK_STRIPE_API_BASE)


def is_signed(body: bytes, signature: str) -> bool:
    """Whether one of our webhook secrets made this signature of these very bytes, at most 300 s ago."""
    for secret in settings.SOUK_STRIPE_WEBHOOK_SECRETS:
        try:
            return bool(stripe.WebhookSignature.verify_header(body, signature, secret, SIGNATURE_SECONDS))
        except (stripe.SignatureVerificationError, ValueError):
            continue
    return False


@lru_cache(maxsize=4)
def _door(key: str, api_base: str) -> StripeDoor:
    return StripeDoor(key, api_base)


class StripeDoor:
    """Stripe, through one key."""

    def __init__(self, key: str, api_base: str = "") -> None:
        self._client = stripe.StripeClient(
            key,
            stripe_version=API_VERSION,
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=TIMEOUT_SECONDS),
            base_addresses={"api": api_base} if api_base else None,
        )

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
        """A page to pay on. One that was made and never seen moves no money, so nothing is looked up."""
        return self._make(lambda one: Session.read(self._post("/v1/checkout/sessions", params, key=one)), key)

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

    def submit_evidence(self, dispute_id: str, *, text: str, product: str, key: Key) -> Dispute:
        """Send our side of the story to the bank, once: it cannot be changed afterwards."""
        params = {"evidence": {"uncategorized_text": text, "product_description": product}, "submit": True}
        return self._make(lambda one: Dispute.read(self._post(f"/v1/disputes/{dispute_id}", params, key=one)), key)

    # Providers' accounts, and the way out

    def create_account(self, *, owner_id: str, country: str, email: str, is_repeat: bool = False) -> Connected:
        params: dict[str, Any] = {
            "type": "express",
            "country": country,
            "capabilities": {"transfers": {"requested": True}},
            "settings": {"payouts": {"schedule": {"interval": "manual"}}},
            "metadata": {"organisation_id": owner_id},
        }
        if email:
            params["email"] = email

        def find() -> Connected | None:
            found = self._first("/v1/accounts", {}, "organisation_id", owner_id)
            return Connected.read(found) if found else None

        return self._make(
            lambda one: Connected.read(self._post("/v1/accounts", params, key=one)),
            Key(f"account-{owner_id}-{country}-{zlib.crc32(email.encode()):x}", is_repeat=is_repeat),
            find=find,
        )

    def fetch_account(self, account_id: str) -> Connected:
        return Connected.read(self._get(f"/v1/accounts/{account_id}"))

    def create_account_link(self, account_id: str, *, refresh_url: str, return_url: str) -> str:
        """A page on which the provider tells Stripe what it must know; good for minutes, and once."""
        params = {
            "account": account_id,
            "refresh_url": refresh_url,
            "return_url": return_url,
            "type": "account_onboarding",
        }
        return str(self._post("/v1/account_links", params)["url"])

    def transfer(
        self, *, account_id: str, amount_cents: int, group: str, metadata: Mapping[str, str], key: Key
    ) -> Moved:
        params = {
            "amount": amount_cents,
            "currency": CURRENCY,
            "destination": account_id,
            "transfer_group": group,
            "metadata": dict(metadata),
        }
        return self._make(
            lambda one: Moved.read(self._post("/v1/transfers", params, key=one)),
            key,
            find=lambda: self.find_transfer(group),
        )

    def find_transfer(self, group: str) -> Moved | None:
        return next((Moved.read(one) for one in self._list("/v1/transfers", {"transfer_group": group})), None)

    def reverse_transfer(
        self, transfer_id: str, *, amount_cents: int, metadata: Mapping[str, str], key: Key
    ) -> Reversal:
        path = f"/v1/transfers/{transfer_id}/reversals"
        params = {"amount": amount_cents, "metadata": dict(metadata)}

        def find() -> Reversal | None:
            found = self._first(path, {}, "outbox_id", metadata["outbox_id"])
            return Reversal.read(found) if found else None

        return self._make(lambda one: Reversal.read(self._post(path, params, key=one)), key, find=find)

    def pay_bank(self, account_id: str, *, amount_cents: int, metadata: Mapping[str, str], key: Key) -> BankPayout:
        """Send what lies in a provider's account at Stripe on to the provider's bank."""
        params = {"amount": amount_cents, "currency": CURRENCY, "metadata": dict(metadata)}
        return self._make(
            lambda one: BankPayout.read(self._post("/v1/payouts", params, key=one, account=account_id)),
            key,
            find=lambda: self.find_bank_payout(account_id, metadata["payout_id"]),
        )

    def find_bank_payout(self, account_id: str, payout_id: str) -> BankPayout | None:
        found = self._first("/v1/payouts", {}, "payout_id", payout_id, account=account_id)
        return BankPayout.read(found) if found else None

    # What we have, and what happened

    def balance_cents(self) -> int:
        """All of our dollars at Stripe, those that are not available yet included."""
        json = self._get("/v1/balance")
        parts = [*json["available"], *json["pending"], *(json.get("connect_reserved") or [])]
        return sum(part["amount"] for part in parts if part["currency"] == CURRENCY)

    def fetch_booking(self, booking_id: str) -> Booking:
        return Booking.read(self._get(f"/v1/balance_transactions/{booking_id}"))

    def list_bookings(self, since: datetime) -> list[Booking]:
        """Every change of our balance since then, oldest first."""
        params = {"created": {"gte": int(since.timestamp())}}
        return [Booking.read(one) for one in self._list("/v1/balance_transactions", params)][::-1]

    def list_events(self, since: datetime) -> list[EventRecord]:
        """Every event since then that can be read, oldest first: one that cannot must not hide the others."""
        params = {"created": {"gte": int(since.timestamp())}}
        records = []
        for one in self._list("/v1/events", params):
            try:
                records.append(EventRecord.read(one))
            except (ValueError, LookupError, TypeError, AttributeError):
                log.exception("An event in Stripe's list cannot be read.")
        return records[::-1]

    # How it is asked

    def _make(self, create: Callable[[str], T], key: Key, *, find: Callable[[], T | None] | None = None) -> T:
        """Once per key, whatever happened before; see the top of this file."""
        found = find() if find and key.is_repeat else None
        for number in range(1, KEYS_MAX + 1):
            if found is not None:
                return found
            try:
                return create(key.text if number == 1 else f"{key.text}-{number}")
            except StripeUnknown as error:
                if not error.is_replay:
                    raise
            except StripeRefused as error:
                if not (error.is_replay and error.code in PASSING):
                    raise
            found = find() if find else None
        if found is not None:
            return found
        raise StripeUnknown(f"Stripe keeps a useless answer to each of {KEYS_MAX} tries.")

    def _first(self, path: str, params: Json, name: str, value: str, *, account: str = "") -> Mapping[str, Any] | None:
        listed = self._list(path, params, account=account)
        return next((one for one in listed if (one.get("metadata") or {}).get(name) == value), None)

    def _list(self, path: str, params: Json, *, account: str = "") -> Iterator[Mapping[str, Any]]:
        """Newest first, all pages; raises StripeUnknown rather than answer with a part."""
        after: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            page = self._get(path, {**params, "limit": PAGE_SIZE, **after}, account=account)
            rows: Sequence[Mapping[str, Any]] = page["data"]
            yield from rows
            if not page["has_more"] or not rows:
                return
            after = {"starting_after": rows[-1]["id"]}
        raise StripeUnknown(f"{path} has more than {PAGES_MAX} pages.")

    def _get(self, path: str, params: Json | None = None, *, account: str = "") -> Any:
        return self._ask("get", path, params or {}, account=account)

    def _post(self, path: str, params: Json, *, key: str = "", account: str = "") -> Any:
        return self._ask("post", path, params, account=account, key=key)

    def _ask(self, method: str, path: str, params: Json, *, account: str = "", key: str = "") -> Any:
        options = {"idempotency_key": key} if key else {}
        if account:
            options["stripe_account"] = account
        try:
            return self._client.raw_request(method, path, **{**params, **options}).data
        except stripe.StripeError as error:
            _raise_ours(error)


def _raise_ours(error: stripe.StripeError) -> NoReturn:
    """Decide what an error of Stripe's means; never with its body, which may name a key."""
    text, code, status = error.user_message or type(error).__name__, error.code or "", error.http_status or 0
    is_replay = str((error.headers or {}).get("Idempotent-Replayed", "")).lower() == "true"
    if isinstance(error, stripe.CardError):
        details = error.error
        intent = getattr(details, "payment_intent", None)
        decline = getattr(details, "decline_code", None)
        intent_id = str(getattr(intent, "id", "") or "")
        raise CardDeclined(text, code=decline or code, intent_id=intent_id) from error
    if isinstance(error, stripe.AuthenticationError):
        raise StripeBusy("Stripe does not accept SOUK_STRIPE_KEY.") from None
    if isinstance(error, stripe.APIConnectionError) or status >= 500 or status == 0:
        raise StripeUnknown(f"No answer from Stripe ({status or 'no connection'}).", is_replay=is_replay) from error
    if status in {409, 429} and not isinstance(error, stripe.IdempotencyError):
        raise StripeBusy(f"Stripe is busy ({status}).") from error
    if status == 404:
        raise StripeMissing(text, code=code) from error
    raise StripeRefused(text, code=code, is_replay=is_replay) from error
