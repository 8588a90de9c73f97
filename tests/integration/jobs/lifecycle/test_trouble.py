"""What never starts and never ends, and trouble that stays with the one row that has it."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from billing.models import Account
from jobs import sweeps
from jobs.models import Lease
from jobs.running import reports
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, LeaseReport, Reason
from tests import stage
from tests.row_states import put_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_job_stays_open_until_the_last_byte_of_its_log_is_here(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.send_report(lease, AttemptState.SUCCEEDED, reason=Reason.COMPLETED, log_bytes=10)
    job.refresh_from_db()
    assert job.state == "running"
    Lease.objects.filter(pk=lease.pk).update(log_bytes=10)
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert job.state == "completed"


def test_bytes_that_never_come_are_not_waited_for_without_end(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.send_report(lease, AttemptState.SUCCEEDED, reason=Reason.COMPLETED, log_bytes=10)
    Lease.objects.filter(pk=lease.pk).update(reported_at=timezone.now() - timedelta(seconds=31))
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert job.state == "completed"


def test_an_assignment_that_is_never_taken_up_is_given_to_another_node(alice, bob):
    stage.node("spare")
    job = stage.submit(alice)
    (lease,) = stage.place(job)
    Lease.objects.update(reserved_at=timezone.now() - timedelta(seconds=61))
    assert sweeps.sweep_leases() == 1
    (second,) = stage.place(job)
    assert second.node != lease.node


def test_a_node_in_quarantine_gives_its_jobs_up(alice, bob):
    _job, (lease,) = stage.running_job(alice)
    put_in_state(Node.objects.filter(pk=bob.pk), "quarantined")
    sweeps.sweep_jobs()
    lease.refresh_from_db()
    assert lease.stop_reason == Reason.NODE_QUARANTINED


def test_a_message_that_a_customer_made_up_silences_no_node(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.finish(lease, Reason.EXIT_NONZERO, message="a\0b")
    job.refresh_from_db()
    assert (job.state, job.message) == ("failed", "a\ufffdb")


def test_a_message_of_an_old_agent_shows_its_customer_no_path_of_the_node(alice, bob):
    job, (lease,) = stage.running_job(alice)
    message = "The supervisor did not start; see /var/lib/souk-agent/leases/supervisor.log."
    stage.finish(lease, Reason.EXECUTOR_FAILED, message=message)
    assert job.attempts.get(number=1).message == "The supervisor did not start; see [a path on the node]"


def test_a_customer_whose_account_is_frozen_waits_and_those_behind_are_placed(alice, bob):
    mallory = stage.organisation("mallory", usd_micros=5 * DOLLAR)
    frozen = stage.submit(mallory)
    Account.objects.filter(owner_id=mallory.id).update(is_frozen=True)
    stage.node("spare")
    job = stage.submit(alice)
    assert stage.place(job)
    assert stage.states_of([frozen, job]) == ["queued", "placed"]


def test_a_lease_that_cannot_be_taken_in_does_not_stop_the_others(alice, monkeypatch):
    bob = stage.node("bobs-node", devices=4)
    first, second = stage.submit(alice), stage.submit(alice)
    (broken,), (fine,) = stage.place(first), stage.place(second)
    taken_in = reports._apply

    def fail_for_broken(job_id, report, received_at):
        if report.lease_id == broken.id:
            raise ValueError("unforeseen")
        taken_in(job_id, report, received_at)

    monkeypatch.setattr(reports, "_apply", fail_for_broken)
    lines = [
        LeaseReport(lease_id=each.id, fence=each.fence, attempt_id=each.attempt_id, state=AttemptState.RUNNING)
        for each in (broken, fine)
    ]
    reports.apply_reports(bob, lines, boot_id=uuid4(), received_at=timezone.now())
    assert stage.states_of([first, second]) == ["placed", "running"]
