"""Gifts: credit that is given, held and settled."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from django.db import transaction

from billing.charging import holds, promotions, settlement
from billing.charging.settlement import LeaseCharge
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR


def give(owner, amount=3 * DOLLAR, *, days=30, reference=None):
    expires_at = clock.now() + timedelta(days=days)
    return promotions.grant(
        owner, amount, expires_at=expires_at, reference=reference or str(uuid4()), actor="op@example.org"
    )


def hold(owner, amount, job_id=None):
    """As a job is placed: given credit first, then the hold, in one transaction."""
    job_id = job_id or uuid4()
    with transaction.atomic():
        promotions.draw(owner, job_id, amount)
        holds.place_hold(owner_id=owner, job_id=job_id, amount=amount)
    return job_id


def settle(job_id, charged, provider=None):
    """As a job ends."""
    with transaction.atomic():
        promotions.lock_job(job_id)
        charges = [LeaseCharge(uuid4(), provider or uuid4(), charged)] if charged else []
        settled = settlement.settle_job(job_id=job_id, charges=charges, fee_bps=1000)
        promotions.return_unused(job_id, spent=settled.charged)
    return settled
