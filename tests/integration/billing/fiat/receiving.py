"""Stripe's webhooks, as they arrive."""

from __future__ import annotations

from rest_framework.test import APIClient

URL = "/api/v1/stripe/webhook"


def receive(body: bytes, signature: str) -> int:
    return (
        APIClient()
        .post(URL, body, content_type="application/json", headers={"Stripe-Signature": signature})
        .status_code
    )
