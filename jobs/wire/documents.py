"""Invoices, and disputes about what a lease cost; amounts are base units of the asset."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from jobs.wire.base import Units, Wire


class InvoiceLineView(Wire):
    """A job's charge, or (below zero) what came back of one; a month's storage is of no job."""

    job_id: UUID | None
    what: str
    amount: Units
    at: datetime


class InvoiceView(Wire):
    """GET /api/v1/invoices"""

    id: UUID
    number: str
    kind: str
    credits: str | None
    month: str
    asset: str
    scale: int
    buyer: dict[str, str]
    seller: dict[str, str]
    lines: list[InvoiceLineView]
    charged: Units
    refunded: Units
    total: Units
    tax_bps: int
    tax: Units
    net: Units
    issued_at: datetime


class AttachmentView(Wire):
    """A file that stays with whoever has it, by its hash."""

    name: str
    sha256: str


class DisputeView(Wire):
    """GET /api/v1/disputes"""

    id: UUID
    side: str
    job_id: UUID
    lease_id: UUID
    asset: str
    amount: Units
    state: str
    text: str
    attachments: list[AttachmentView]
    opened_at: datetime
    answer_until: datetime
    answer: str
    answer_attachments: list[AttachmentView]
    answered_at: datetime | None
    decide_until: datetime | None
    to_customer: Units | None
    to_provider: Units | None
    to_platform: Units | None
    decision: str
    closed_at: datetime | None
