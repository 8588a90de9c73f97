"""What an error of Stripe's library means to us, and which webhooks count as Stripe's."""

from __future__ import annotations

import time

import pytest
import stripe
from pytest_django import Settings

from billing.rails.errors import RailError
from billing.rails.stripe.client import NotConfigured, _raise_ours, connect, is_signed
from billing.rails.stripe.records import (
    CardDeclined,
    StripeBusy,
    StripeMissing,
    StripeRefused,
    StripeUnknown,
)

REPLAYED = {"Idempotent-Replayed": "true"}


def ours(error: stripe.StripeError) -> RailError:
    with pytest.raises(RailError) as caught:
        _raise_ours(error)
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (stripe.APIConnectionError("refused"), StripeUnknown),
        (stripe.APIError("oops", http_status=500), StripeUnknown),
        (stripe.APIError("no status"), StripeUnknown),
        (stripe.RateLimitError("slow down", http_status=429), StripeBusy),
        (stripe.APIError("locked", http_status=409), StripeBusy),
        (stripe.IdempotencyError("other parameters", http_status=409), StripeRefused),
        (stripe.InvalidRequestError("none such", "id", http_status=404), StripeMissing),
        (stripe.InvalidRequestError("bad amount", "amount", http_status=400), StripeRefused),
    ],
)
def test_an_error_means_what_its_status_says(error: stripe.StripeError, kind: type[RailError]) -> None:
    assert type(ours(error)) is kind


def test_a_wrong_key_is_named_by_its_setting_and_never_shown() -> None:
    error = ours(stripe.AuthenticationError("Invalid API Key provided: sk_live_secret", http_status=401))
    assert str(error) == "Stripe does not accept SOUK_STRIPE_KEY."
    assert error.__cause__ is None


def test_a_stored_answer_is_known_as_one() -> None:
    unknown = ours(stripe.APIError("oops", http_status=500, headers=REPLAYED))
    refused = ours(stripe.InvalidRequestError("short", None, code="balance_insufficient", http_status=400))
    assert isinstance(unknown, StripeUnknown) and unknown.is_replay
    assert isinstance(refused, StripeRefused) and not refused.is_replay
    assert refused.code == "balance_insufficient"


def test_a_declined_card_names_the_banks_reason_and_the_payment() -> None:
    error = stripe.CardError("Your card was declined.", None, "card_declined", http_status=402)
    bare = ours(error)
    assert isinstance(bare, CardDeclined)
    assert (bare.code, bare.intent_id) == ("card_declined", "")
    details = {"decline_code": "do_not_honor", "payment_intent": {"id": "pi_1", "object": "payment_intent"}}
    error = stripe.CardError(
        "Your card was declined.", None, "card_declined", http_status=402, json_body={"error": details}
    )
    named = ours(error)
    assert isinstance(named, CardDeclined)
    assert (named.code, named.intent_id) == ("do_not_honor", "pi_1")


def test_without_a_key_there_is_no_client(settings: Settings) -> None:
    settings.SOUK_STRIPE_KEY = ""
    with pytest.raises(NotConfigured, match="SOUK_STRIPE_KEY is not set"):
        connect()


def header(body: bytes, secret: str, at: int) -> str:
    signature = stripe.WebhookSignature._compute_signature(f"{at}.{body.decode()}", secret)
    return f"t={at},v1={signature}"


def test_a_webhook_counts_under_any_of_our_secrets_for_five_minutes(settings: Settings) -> None:
    """Two secrets while one is replaced by the other."""
    settings.SOUK_STRIPE_WEBHOOK_SECRETS = ["whsec_old", "whsec_new"]
    body, now = b'{"id": "evt_1"}', int(time.time())
    for secret in settings.SOUK_STRIPE_WEBHOOK_SECRETS:
        assert is_signed(body, header(body, secret, now))
    assert not is_signed(body, header(body, "whsec_old", now - 301))
    assert not is_signed(body, header(body, "whsec_mallory", now))
    assert not is_signed(body + b" ", header(body, "whsec_old", now))
    for signature in ("", "t=never,v1=0", "v1=0"):
        assert not is_signed(body, signature)
    settings.SOUK_STRIPE_WEBHOOK_SECRETS = []
    assert not is_signed(body, header(body, "whsec_old", now))
