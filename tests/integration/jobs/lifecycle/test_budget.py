"""What a budget and a deadline do to a job, and how it goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from jobs import lifecycle, sweeps
from jobs.errors import CapTooLow
from jobs.models import Job, Lease
from jobs.placing import placement
from jobs.running import reports
from provider_agent.protocol import Reason
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_that_used_up_its_budget_saves_pauses_and_goes_on_with_a_higher_one(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=3590)  # two dollars last an hour
    assert sweeps.sweep_jobs() >= 1
    lease.refresh_from_db()
    assert lease.stop_reason == Reason.BUDGET_EXHAUSTED
    stage.bill(lease, ms=3_590_000)
    saved = stage.checkpoint(job, lease, step=80, ms=3_590_000)
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    job.refresh_from_db()
    assert job.state == "paused"
    with pytest.raises(CapTooLow):
        lifecycle.resume(job.id, cap_usd_micros=2 * DOLLAR, actor="alice")
    lifecycle.resume(job.id, cap_usd_micros=4 * DOLLAR, actor="alice")
    (second,) = stage.place(job)
    assert second.attempt.resume_artifact == saved


def test_the_cap_of_a_job_that_waits_can_be_raised_and_its_hold_follows(alice, bob):
    job, (lease,) = stage.running_job(alice)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    lifecycle.resume(job.id, cap_usd_micros=3 * DOLLAR, actor="alice")
    job.refresh_from_db()
    assert (job.state, job.cap_usd_micros) == ("recovering", 3 * DOLLAR)
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 2 * DOLLAR


def test_a_job_past_its_deadline_is_stopped(alice, bob):
    job, (lease,) = stage.running_job(alice, budget={"max_total": "2.00", "deadline": "1h"})
    Job.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    sweeps.sweep_jobs()
    lease.refresh_from_db()
    assert lease.stop_reason == Reason.DEADLINE_EXCEEDED
    stage.finish(lease, Reason.DEADLINE_EXCEEDED)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("failed", "deadline_exceeded")


def test_a_job_that_waits_past_its_deadline_fails_and_gets_its_money_back(alice, bob):
    job = stage.submit(alice, stage.spec_of(budget={"max_total": "2.00", "deadline": "1h"}))
    Job.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert (job.state, job.reason) == ("failed", "deadline_exceeded")


def test_a_job_resumed_with_a_higher_budget_than_its_file_names_is_placed(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=3590)
    stage.bill(lease, ms=3_590_000)
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    lifecycle.resume(job.id, cap_usd_micros=4 * DOLLAR, actor="alice")
    demand = placement.request_of(Job.objects.get(pk=job.id)).demand
    assert demand.cap_usd_micros == 4 * DOLLAR - lease_charge(lease)
    assert stage.place(job)


def lease_charge(lease: Lease) -> int:
    lease.refresh_from_db()
    assert lease.charge_usd_micros is not None
    return lease.charge_usd_micros
