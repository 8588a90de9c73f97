"""Sweeps over the money of serving jobs: windows are moved on as they are used, what was earned is settled each day.

    keep_windows   every minute: half of a window used up is set aside again; where there is no money for it the owner
                   is told, and in time for it to end well the endpoint is drained, and its job pauses
    settle_due     each job's leases, once a day

Each looks for jobs without locks and decides again under the job's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from billing import mailing, promotions
from billing.balances import balance
from billing.errors import AccountFrozen, InsufficientFunds
from billing.kinds import AccountKind
from billing.models import Hold, Settlement
from jobs import lifecycle
from jobs.models import Job, Lease
from jobs.serving import payments
from jobs.states import JOB_ENDS, JobState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import alone
from provider_agent.protocol import Reason

SETTLE_EVERY: Final = timedelta(days=1)
JOBS_MAX: Final = 1_000  # in one sweep
STOP_SECONDS: Final = 300  # of use that is kept for draining: told to stop, requests end, the last receipt comes
STOP_PARTS: Final = 10  # and at most this part of the cap, where that pays for minutes only
SECONDS_PER_HOUR: Final = 3600
REFILL_PARTS: Final = 2  # a window is filled up when this part of it is used

log = logging.getLogger(__name__)


def keep_windows() -> int:
    """Move the windows of serving jobs on; how many endpoints had to be stopped for want of money."""
    serving = Job.objects.filter(kind="serve", pk__in=Hold.objects.open().values("job_id")).exclude(state__in=JOB_ENDS)
    stopped = 0
    for job_id in list(serving.order_by("?").values_list("pk", flat=True)[:JOBS_MAX]):
        with alone("A window could not be moved on.", job_id=str(job_id)):
            stopped += not keep_window(job_id)
    return stopped


def keep_window(job_id: UUID) -> bool:
    """Fill one job's window up where it is time; False where its leases were told to stop, because nothing is left."""
    with transaction.atomic():
        job = lifecycle.lock(job_id)
        if job.state in JOB_ENDS or job.state == JobState.PAUSED:  # that waits for `resume`, which fills it
            return True
        used, held, window = payments.unsettled_units(job), payments.held_units(job), payments.window_units(job)
        # 1. Half of it is used: fill it up, at most to what is left of the cap, with whatever there is.
        wanted = min(used + window, payments.rest_of_cap(job))
        if held and held - used <= window // REFILL_PARTS and wanted > held:
            held = _fill(job, held, wanted)
        # 2. Is there enough for it to end well?
        live = Lease.objects.live().filter(attempt__job=job)
        leases = list(live.filter(stop_reason=""))
        rate = sum(int(lease.rate_units_per_hour) for lease in leases)
        margin = min(rate * STOP_SECONDS // SECONDS_PER_HOUR, payments.cap_units(job) // STOP_PARTS)
        if not leases or held - used > margin:
            return True
        if held >= payments.rest_of_cap(job):
            _tell(job, "The budget of your endpoint is used up", "its budget.max_total is used up. Raise it with")
        else:
            _tell(
                job, "Your endpoint ran out of money", "your balance does not cover it. Deposit money, then go on with"
            )
        lifecycle.stop_leases(leases, Reason.BUDGET_EXHAUSTED)
        return False


def settle_due(now: datetime | None = None) -> int:
    """Settle what the leases of serving jobs earned since a day ago or longer; of how many jobs."""
    now = now or clock.now()
    serving = Job.objects.filter(kind="serve", pk__in=Hold.objects.open().values("job_id")).exclude(state__in=JOB_ENDS)
    lately = Settlement.objects.filter(created_at__gt=now - SETTLE_EVERY).values("job_id")
    due = serving.filter(running_at__lte=now - SETTLE_EVERY).exclude(pk__in=lately)
    count = 0
    for job_id in list(due.order_by("running_at").values_list("pk", flat=True)[:JOBS_MAX]):
        with alone("A serving job could not be settled.", job_id=str(job_id)):
            count += settle_one(job_id)
    return count


def settle_one(job_id: UUID) -> bool:
    """Settle one job's part so far; False where there was nothing to."""
    with transaction.atomic():
        job = lifecycle.lock(job_id)
        return job.state not in JOB_ENDS and payments.settle_part(job) is not None


def _fill(job: Job, held: int, wanted: int) -> int:
    """Set aside what is lacking, or as much of it as there is; what is held then."""
    there = balance(job.organisation_id, AccountKind.CUSTOMER_AVAILABLE, asset_id=job.quote.asset_id)
    there += promotions.spendable(job.organisation_id, job.quote.asset_id)
    part = min(wanted - held, max(0, there))
    if part < wanted - held:
        _tell(job, "Your endpoint will run out of money", "your balance covers only a part of it. Deposit money; see")
    try:
        with transaction.atomic():
            return payments.extend_window(job, part) if part else held
    except (InsufficientFunds, AccountFrozen) as error:  # spent elsewhere meanwhile, or frozen
        log.info("A window could not be filled: %s", error, extra={"job_id": str(job.pk)})
        return held


def _tell(job: Job, subject: str, what: str) -> None:
    """Once a day and subject."""
    text = (
        f"{job.name} is served for your organisation, and {what} `souk resume {job.pk}`. When nothing is left, it is"
        " drained: requests under way are answered, and no new ones are taken."
    )
    key = f"serve/{job.pk}/{subject}/{clock.now():%Y-%m-%d}"
    mailing.tell(_told(job), key, subject=f"{subject}: {job.name}", text=text)


def _told(job: Job) -> Iterable[UUID]:
    return mailing.owners_of(job.organisation_id)
