"""What leases have cost so far: frozen once a lease ended, else what is both signed and seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from django.db.models import Sum

from billing.models import UsageReceipt
from jobs.models import Job, Lease
from jobs.states import LeaseState
from provider_agent.protocol import charge


class Cost(NamedTuple):
    """Billable milliseconds of one lease, and their price in dollars and in what pays."""

    billable_ms: int
    charge_usd_micros: int
    charge_units: int


class Charged(NamedTuple):
    """What a job's ended leases cost together."""

    usd_micros: int
    units: int


class Claim(NamedTuple):
    """The use in the newest receipt of a lease; both figures are cumulative."""

    billable_ms: int
    units: int  # of what pays


NO_CLAIM = Claim(0, 0)


def newest_claims(lease_ids: Collection[UUID]) -> dict[UUID, Claim]:
    """The newest receipt's claim of each lease that has one, in one query."""
    rows = (
        UsageReceipt.objects.filter(lease_id__in=lease_ids)
        .order_by("lease_id", "-seq")
        .distinct("lease_id")
        .values_list("lease_id", "billable_ms", "cumulative_amount")
    )
    return {lease_id: Claim(billable_ms, int(amount)) for lease_id, billable_ms, amount in rows}


def cost_of(lease: Lease, claim: Claim) -> Cost:
    """The frozen charge of an ended lease; of a live one the lesser of what its node signed and what the server saw."""
    if lease.state == LeaseState.ENDED:
        return Cost(lease.billable_ms or 0, lease.charge_usd_micros or 0, lease.charge_units or 0)
    billable_ms = lease.paid_of(min(claim.billable_ms, lease.observed_ms))
    return Cost(
        billable_ms,
        min(charge(lease.rate_usd_micros_per_hour, billable_ms), lease.cap_usd_micros),
        min(charge(lease.rate_units_per_hour, billable_ms), lease.cap_units),
    )


def charged_of(job: Job) -> Charged:
    """What the job's ended leases are charged, for ever."""
    leases = Lease.objects.filter(attempt__job=job)
    sums = leases.aggregate(usd_micros=Sum("charge_usd_micros"), units=Sum("charge_units"))
    return Charged(int(sums["usd_micros"] or 0), int(sums["units"] or 0))


def total_of(leases: Collection[Lease], claims: Mapping[UUID, Claim]) -> int:
    """Micro-USD of all these leases together."""
    return sum(cost_of(lease, claims.get(lease.id, NO_CLAIM)).charge_usd_micros for lease in leases)
