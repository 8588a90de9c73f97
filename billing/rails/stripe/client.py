"""The client of Stripe: the only module that imports Stripe's library, with a timeout and a pinned version.

The calls are in payments.py, providers.py and balance.py, by their subject; calls.py makes each of them repeatable.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NoReturn

import stripe
from django.conf import settings

from billing.rails.errors import RailError
from billing.rails.stripe.balance import BalanceCalls
from billing.rails.stripe.calls import Key
from billing.rails.stripe.payments import PaymentCalls
from billing.rails.stripe.providers import ProviderCalls
from billing.rails.stripe.records import (
    CardDeclined,
    Json,
    StripeBusy,
    StripeMissing,
    StripeRefused,
    StripeUnknown,
)

API_VERSION: Final = "2026-10-28.endive"
TIMEOUT_SECONDS: Final = (5.0, 20.0)  # to connect, to read; well below an outbox lease
SIGNATURE_SECONDS: Final = 300

__all__ = ["Key", "NotConfigured", "StripeClient", "connect", "is_configured", "is_signed"]


class NotConfigured(RailError):
    """This marketplace has no key for Stripe."""


def is_configured() -> bool:
    return bool(settings.SOUK_STRIPE_KEY)


def connect() -> StripeClient:
    """The client of this marketplace's key; raises NotConfigured."""
    if not is_configured():
        raise NotConfigured("SOUK_STRIPE_KEY is not set.")
    return _client(settings.SOUK_STRIPE_KEY, settings.SOUK_STRIPE_API_BASE)


def is_signed(body: bytes, signature: str) -> bool:
    """Whether one of our webhook secrets made this signature of these very bytes, at most 300 s ago."""
    for secret in settings.SOUK_STRIPE_WEBHOOK_SECRETS:
        try:
            return bool(stripe.WebhookSignature.verify_header(body, signature, secret, SIGNATURE_SECONDS))
        except (stripe.SignatureVerificationError, ValueError):
            continue
    return False


@lru_cache(maxsize=4)
def _client(key: str, api_base: str) -> StripeClient:
    return StripeClient(key, api_base)


class StripeClient(PaymentCalls, ProviderCalls, BalanceCalls):
    """Stripe, through one key."""

    def __init__(self, key: str, api_base: str = "") -> None:
        self._client = stripe.StripeClient(
            key,
            stripe_version=API_VERSION,
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=TIMEOUT_SECONDS),
            base_addresses={"api": api_base} if api_base else None,
        )

    def _call(self, method: str, path: str, params: Json, *, account: str = "", key: str = "") -> Any:
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
