"""Sweeps over the money of serving jobs: prepaid windows are refilled, what was earned is settled each day.

    refill_windows   every minute: a window that is half used is filled up. Where there is no money for it the
                     owners get a mail, and in time for a clean end the endpoint is drained and its job pauses
    settle_due       each job's leases, once a day

Each looks for jobs without locks and decides again under the job's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.charging import promotions
from billing.errors import AccountFrozen, InsufficientFunds
from billing.models import Hold, Settlement
from billing.notices import mailing
from jobs import lifecycle
from jobs.endpoints import amounts, payments
from jobs.kinds.registry import settled_in_parts
from jobs.models import Job, Lease
from jobs.models.querysets import JobQuerySet
from jobs.states import JOB_ENDS, JobState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from provider_agent.protocol import Reason

SETTLE_EVERY: Final = timedelta(days=1)
JOBS_MAX: Final = 1_000  # in one sweep
STOP_SECONDS: Final = 300  # of use that is kept for draining: requests end, the last receipt comes
STOP_PARTS: Final = 10  # and at most this part of the cap, where that pays for minutes only
SECONDS_PER_HOUR: Final = 3600
REFILL_PARTS: Final = 2  # a window is filled up when this part of it is used

log = logging.getLogger(__name__)


def refill_windows() -> int:
    """Refill the prepaid windows of serving jobs; how many endpoints had to be stopped for want of money."""
    serving = _with_window()
    stopped = 0
    for job_id in list(serving.order_by("?").values_list("pk", flat=True)[:JOBS_MAX]):
        with log_failures("A prepaid window could not be refilled.", job_id=str(job_id)):
            stopped += not refill_window(job_id)
    return stopped


def refill_window(job_id: UUID) -> bool:
    """Refill one job's prepaid window where it is due; False where its leases are stopped, because nothing is left."""
    with transaction.atomic():
        job = lifecycle.lock(job_id)
        if job.state in JOB_ENDS or job.state == JobState.PAUSED:  # that waits for `resume`, which fills it
            return True
        used, held, window = amounts.unsettled_units(job), amounts.held_units(job), amounts.window_units(job)
        # 1. Half of it is used: fill it up, at most to what is left of the cap, with whatever there is.
        wanted = min(used + window, amounts.rest_of_cap(job))
        if held and held - used <= window // REFILL_PARTS and wanted > held:
            held = _fill(job, held, wanted)
        # 2. Is there enough for it to end well?
        live = Lease.objects.live().filter(attempt__job=job)
        leases = list(live.filter(stop_reason=""))
        rate = sum(int(lease.rate_units_per_hour) for lease in leases)
        margin = min(rate * STOP_SECONDS // SECONDS_PER_HOUR, amounts.cap_units(job) // STOP_PARTS)
        if not leases or held - used > margin:
            return True
        if held >= amounts.rest_of_cap(job):
            _mail_owners(
                job, "The budget of your endpoint is used up", "its budget.max_total is used up. Raise it with"
            )
        else:
            _mail_owners(
                job, "Your endpoint ran out of money", "your balance does not cover it. Deposit money, then go on with"
            )
        lifecycle.stop_leases(leases, Reason.BUDGET_EXHAUSTED)
        return False


def settle_due(now: datetime | None = None) -> int:
    """Settle what the leases of serving jobs earned since a day ago or longer; of how many jobs."""
    now = now or clock.now()
    serving = _with_window()
    lately = Settlement.objects.filter(created_at__gt=now - SETTLE_EVERY).values("job_id")
    due = serving.filter(running_at__lte=now - SETTLE_EVERY).exclude(pk__in=lately)
    count = 0
    for job_id in list(due.order_by("running_at").values_list("pk", flat=True)[:JOBS_MAX]):
        with log_failures("A serving job could not be settled.", job_id=str(job_id)):
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
        _mail_owners(
            job, "Your endpoint will run out of money", "your balance covers only a part of it. Deposit money; see"
        )
    try:
        with transaction.atomic():
            return payments.extend_window(job, part) if part else held
    except (InsufficientFunds, AccountFrozen) as error:  # spent elsewhere meanwhile, or frozen
        log.info("A prepaid window could not be refilled: %s", error, extra={"job_id": str(job.pk)})
        return held


def _mail_owners(job: Job, subject: str, what: str) -> None:
    """Once a day and subject."""
    text = (
        f"{job.name} is served for your organisation, and {what} `souk resume {job.pk}`. When nothing is left, it is"
        " drained: requests under way are answered, and no new ones are taken."
    )
    key = f"serve/{job.pk}/{subject}/{clock.now():%Y-%m-%d}"
    mailing.notify(_recipients(job), key, subject=f"{subject}: {job.name}", text=text)


def _recipients(job: Job) -> Iterable[UUID]:
    return mailing.owners_of(job.organisation_id)


def _with_window() -> JobQuerySet:
    """Jobs that go on, of a kind that is settled in parts, with something set aside."""
    held = Hold.objects.open().values("job_id")
    return Job.objects.unfinished().filter(kind__in=settled_in_parts(), pk__in=held)
