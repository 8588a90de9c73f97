"""How much money a serving job has set aside, used, settled and earned: sums over its holds, leases and settlements.

Units are the base units of what pays. Nothing here writes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db.models import Sum

from billing.charging import metering
from billing.charging.settlement import charged_before
from billing.models import Hold, Settlement
from jobs.models import EndpointVersion, Job, Lease, Replica
from jobs.payment.terms import Payment
from jobs.pricing.price_locks import price_of
from jobs.spec import Spec, from_wire, serve_of
from jobs.states import LeaseState, VersionState
from provider_agent.protocol import BEAT_SECONDS_LEASED, charge

GRACE_MS: Final = BEAT_SECONDS_LEASED * 1000  # what an agent may have counted before the server observed it


def window_units(job: Job) -> int:
    """SOUK_SERVE_WINDOW_HOURS of as many replicas as there may be, at the price ceiling; in what pays."""
    return window_of(from_wire(job.spec), replicas_max(job), job.price_ceiling_usd_micros, price_of(job).payment)


def replicas_max(job: Job) -> int:
    """The most replicas that any of its versions needs, of those that have not ended."""
    current = EndpointVersion.objects.filter(endpoint__job=job, state__in=[VersionState.STARTING, VersionState.LIVE])
    specs = [from_wire(wire) for wire in current.values_list("spec", flat=True)] or [from_wire(job.spec)]
    return max(replicas_of(spec) for spec in specs)


def window_of(spec: Spec, replicas: int, ceiling_usd_micros: int, payment: Payment) -> int:
    """What one prepaid window of so many replicas costs at a price ceiling, in what pays."""
    rate = ceiling_usd_micros * spec.resources.gpus * spec.resources.nodes * replicas
    return payment.units_up(int(rate * settings.SOUK_SERVE_WINDOW_HOURS))


def replicas_of(spec: Spec) -> int:
    """The most replicas that a spec needs."""
    return serve_of(spec).replicas.max


def held_units(job: Job) -> int:
    """What is set aside for the job now."""
    return int(Hold.objects.open().filter(job_id=job.pk).aggregate(sum=Sum("amount"))["sum"] or 0)


def settled_units(job: Job) -> int:
    """What its settlements charged so far."""
    return int(Settlement.objects.filter(job_id=job.pk).aggregate(sum=Sum("charged"))["sum"] or 0)


def rest_of_cap(job: Job) -> int:
    """How much of the cap was not settled yet: no hold is ever larger."""
    return max(0, cap_units(job) - settled_units(job))


def cap_units(job: Job) -> int:
    """The job's cap in what pays."""
    return price_of(job).units_due(job.cap_usd_micros)


def unsettled_units(job: Job) -> int:
    """What its leases have used and may be charged for, beyond what was settled; of live ones as the server saw it."""
    before = charged_before(job.pk)
    return sum(max(0, used_units(lease) - before.get(lease.pk, 0)) for lease in leases_of(job))


def used_units(lease: Lease) -> int:
    """The most that it may be charged for up to now."""
    if lease.state == LeaseState.ENDED:
        return int(lease.charge_units or 0)
    return int(min(charge(lease.rate_units_per_hour, lease.observed_ms + GRACE_MS), lease.cap_units))


def ready_ms(lease: Lease) -> int:
    """How long its replica was ready, by the newest report of a gateway: a broken replica is paid up to then."""
    seen_at = Replica.objects.filter(attempt_id=lease.attempt_id).values_list("seen_at", flat=True).first()
    if seen_at is None or lease.running_at is None:
        return 0
    return max(0, (seen_at - lease.running_at) // timedelta(milliseconds=1))


def earned_units(lease: Lease) -> int:
    """What is certain to be its provider's, however it ends: signed, seen, and ready for callers."""
    if lease.state == LeaseState.ENDED:
        return int(lease.charge_units or 0)
    newest = metering.newest(lease.pk)
    if newest is None:
        return 0
    due_ms = min(newest.billable_ms, lease.observed_ms + GRACE_MS, ready_ms(lease))
    return int(min(charge(lease.rate_units_per_hour, due_ms), lease.cap_units))


def leases_of(job: Job) -> list[Lease]:
    """All leases of a job, live and ended, in a fixed order."""
    return list(Lease.objects.filter(attempt__job=job).select_related("node__provider", "attempt").order_by("pk"))
