"""A node that falls silent loses its attempt and never the job, and what it says later no longer counts."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from jobs.running import assignments, lost_nodes, reports
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, LeaseReport, Reason
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_silent_node_loses_its_attempt_and_the_job_recovers_from_the_checkpoint(alice, bob):
    spare = stage.node("spare", price_usd_micros=2 * DOLLAR)
    job, (lease,) = stage.running_job(alice)
    assert lease.node == bob
    stage.see_running(lease, seconds=600)
    saved = stage.checkpoint(job, lease, step=50, ms=360_000)
    stage.bill(lease, ms=600_000)
    Node.objects.filter(pk=bob.pk).update(last_seen_at=timezone.now() - timedelta(seconds=18))
    assert lost_nodes.sweep_silent_nodes() == 1
    job.refresh_from_db()
    bob.refresh_from_db()
    lease.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, bob.state) == ("recovering", "offline")
    assert (attempt.state, attempt.reason, attempt.fault) == ("lost", "node_silent", "provider")
    # The customer pays up to the checkpoint: 360 s of two devices at a dollar, not the 600 s that were claimed.
    assert (lease.billable_ms, lease.charge_usd_micros) == (360_000, 200_000)
    (second,) = stage.place(job)
    assert (second.node, second.attempt.number) == (spare, 2)
    assert second.attempt.resume_artifact == saved
    assert second.fence > lease.fence
    assert second.cap_usd_micros == 2 * DOLLAR - 200_000


def test_without_a_checkpoint_the_customer_pays_nothing_for_a_lost_attempt(alice, bob):
    _job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    lease.refresh_from_db()
    assert (lease.billable_ms, lease.charge_usd_micros) == (0, 0)


def test_a_partial_checkpoint_is_never_resumed_from(alice, bob):
    stage.node("spare")
    job, (lease,) = stage.running_job(alice)
    whole = stage.checkpoint(job, lease, step=10, ms=1)
    stage.checkpoint(job, lease, step=20, ms=2, state="uploading")
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    (second,) = stage.place(job)
    assert second.attempt.resume_artifact == whole


def test_both_providers_of_a_recovered_job_are_paid_for_what_counted(alice, bob):
    spare = stage.node("spare", price_usd_micros=2 * DOLLAR)
    job, (first,) = stage.running_job(alice)
    stage.see_running(first, seconds=600)
    stage.checkpoint(job, first, step=50, ms=360_000)
    stage.bill(first, ms=600_000)
    reports.lose(first.id, Reason.NODE_SILENT, "gone")
    (second,) = stage.place(job)
    assert second.node == spare
    stage.send_report(second, AttemptState.RUNNING)
    stage.see_running(second, seconds=360)
    stage.bill(second, ms=360_000)
    stage.finish(second)
    job.refresh_from_db()
    assert job.state == "completed"
    assert (stage.earned(bob), stage.earned(spare)) == (180_000, 360_000)
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 5 * DOLLAR - 600_000


def test_an_agent_that_restarts_without_its_lease_has_lost_it(alice, bob):
    stage.node("spare")
    job, (lease,) = stage.running_job(alice)
    reports.apply_reports(lease.node, [], boot_id=uuid4(), received_at=timezone.now())
    job.refresh_from_db()
    assert (job.state, job.reason) == ("recovering", "process_vanished")


def test_a_job_that_is_lost_too_often_fails(alice, bob):
    job, (lease,) = stage.running_job(alice, retry={"max_attempts": 1})
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    job.refresh_from_db()
    assert (job.state, job.reason) == ("failed", "node_silent")
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 5 * DOLLAR


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_report_with_another_fence_is_ignored(alice, bob, difference: int):
    job, (lease,) = stage.running_job(alice)
    stage.send_report(lease, AttemptState.FAILED, fence=lease.fence + difference, reason=Reason.EXIT_NONZERO)
    job.refresh_from_db()
    assert job.state == "running"


def test_a_report_of_another_node_is_ignored(alice, bob):
    job, (lease,) = stage.running_job(alice)
    mallory = stage.node("mallory")
    lie = LeaseReport(
        lease_id=lease.id,
        fence=lease.fence,
        attempt_id=lease.attempt_id,
        state=AttemptState.FAILED,
        reason=Reason.INTERNAL,
    )
    reports.apply_reports(mallory, [lie], boot_id=uuid4(), received_at=timezone.now())
    job.refresh_from_db()
    assert job.state == "running"


def test_the_first_end_that_was_reported_stands(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.finish(lease)
    stage.finish(lease, Reason.EXIT_NONZERO)
    job.refresh_from_db()
    assert job.state == "completed"


def test_the_same_sync_twice_changes_nothing(alice, bob):
    _job, (lease,) = stage.running_job(alice)
    before = Event.objects.count()
    stage.send_report(lease, AttemptState.RUNNING)
    assert Event.objects.count() == before


def test_a_lease_that_the_server_gave_up_is_stopped_and_then_forgotten(alice, bob):
    _job, (lease,) = stage.running_job(alice)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    report = LeaseReport(lease_id=lease.id, fence=lease.fence, attempt_id=lease.attempt_id, state=AttemptState.RUNNING)
    _, (wanted,), forget = assignments.desired_state(bob, [report])
    assert (wanted.action, forget) == ("stop", [])
    ended = report.model_copy(update={"state": AttemptState.CANCELLED})
    assert assignments.desired_state(bob, [ended])[1:] == ([], [lease.id])


def test_a_lease_that_nobody_knows_is_stopped(bob):
    report = LeaseReport(lease_id=uuid4(), fence=1, attempt_id=uuid4(), state=AttemptState.RUNNING)
    _, (wanted,), _ = assignments.desired_state(bob, [report])
    assert wanted.action == "stop"
