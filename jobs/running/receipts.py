"""Accepts signed receipts of use: what is known of a lease decides which receipt the ledger may accept."""

from __future__ import annotations

from collections.abc import Sequence

from billing.charging import metering
from jobs.errors import LeaseNotFound
from jobs.models import Lease
from jobs.states import LeaseState
from marketplace.foundation import clock
from provider_agent.protocol import NO_CONTRACT, AttemptState, ReceiptParties, SignedReceipt


def accept(lease: Lease, receipts: Sequence[SignedReceipt]) -> int:
    """Store the signed receipts of a lease; returns the newest sequence that the server has.

    Repeats are harmless. A receipt that arrives after the lease ended is kept as evidence; the charge is frozen.
    """
    # A signed request is itself a sign of life: the server has now seen the lease run until this moment.
    if lease.state == LeaseState.ACTIVE and lease.reported_state == AttemptState.RUNNING:
        lease.observed_until = clock.now()
        Lease.objects.filter(pk=lease.pk, state=LeaseState.ACTIVE).update(observed_until=lease.observed_until)
    for signed in receipts:
        if signed.receipt.lease_id != lease.id or signed.receipt.job_id != lease.attempt.job_id:
            raise LeaseNotFound("A receipt names another lease or job than the address it was sent to.")
    return metering.accept_receipts(terms_of(lease), list(receipts), observed_ms=lease.observed_ms)


def terms_of(lease: Lease) -> metering.LeaseTerms:
    """What a receipt of this lease must agree with; its domain and parties were frozen when the lease was made."""
    terms = lease.payment_terms
    parties = terms.parties if terms else ReceiptParties()
    return metering.LeaseTerms(
        job_id=lease.attempt.job_id,
        lease_id=lease.id,
        receipt_address=lease.node.receipt_address,
        rate_per_hour=lease.rate_units_per_hour,
        cap=lease.cap_units,
        provider=parties.provider,
        customer=parties.customer,
        asset=parties.asset,
        domain=terms.domain if terms else NO_CONTRACT,
    )
