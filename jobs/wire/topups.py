"""A payment by card, as it goes on."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from jobs.wire.base import Units, Wire


class TopUpView(Wire):
    """GET /api/v1/top-ups/{id}"""

    id: UUID
    created_at: datetime
    amount_usd_micros: Units
    tax_usd_micros: Units
    method: str
    state: str
    message: str
    checkout_url: str  # empty until the payment processor has made the page
    spendable_at: datetime | None  # after the payment, where a new payer's money waits
    is_fake: bool


class RefundView(Wire):
    """GET /api/v1/top-ups/{id}/refunds"""

    id: UUID
    created_at: datetime
    top_up: UUID
    amount_usd_micros: Units
    state: str
    message: str
    closed_at: datetime | None


class AutoTopUpView(Wire):
    """GET /api/v1/auto-top-up"""

    threshold_usd_micros: Units
    amount_usd_micros: Units
    monthly_max_usd_micros: Units
    is_enabled: bool
    failures: int
    paused_at: datetime | None
    pause_reason: str
