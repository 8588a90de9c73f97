"""Mallory's node gives a reason for an end that only the marketplace could have: nobody pays a lie."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.contesting import offences
from billing.models import EndRecord, Offence
from jobs import lifecycle
from jobs.models import Job, Lease
from jobs.placing import placement
from jobs.running import assignments, reports
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, LeaseReport, Reason
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

MINUTES_10 = 600


@pytest.fixture
def claimed(alice: Organisation, bob: Node) -> tuple[Job, Lease]:
    """A job that ran for ten minutes, for which its node has signed receipts."""
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=MINUTES_10)
    stage.bill(lease, ms=MINUTES_10 * 1000)
    return job, lease


def refreshed(*rows: Any) -> None:
    for row in rows:
        row.refresh_from_db()


@pytest.mark.parametrize(
    "reason",
    [
        Reason.CANCELLED_BY_CUSTOMER,
        Reason.CANCELLED_BY_OPERATOR,
        Reason.DEADLINE_EXCEEDED,
        Reason.BUDGET_EXHAUSTED,
        Reason.REPLICA_RETIRED,
    ],
)
def test_a_stop_that_nobody_ordered_is_a_lie_of_the_node_and_is_not_paid(
    claimed: tuple[Job, Lease], bob: Node, reason: Reason
) -> None:
    job, lease = claimed
    stage.finish(lease, reason)
    refreshed(job, lease, bob)
    attempt = stage.newest_attempt(job)
    assert (attempt.reason, attempt.fault, job.state) == ("false_reason", "provider", "recovering")
    assert (lease.charge_usd_micros, bob.failures) == (0, 1)
    assert reason.value in attempt.message
    assert placement.request_of(job).demand.avoid == {bob.pk}


def test_a_false_reason_is_an_offence_that_the_customer_is_compensated_for(
    claimed: tuple[Job, Lease], alice: Organisation, bob: Node
) -> None:
    job, lease = claimed
    saved = stage.checkpoint(job, lease, step=50, ms=360_000)
    stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    spare = stage.node("spare", price_usd_micros=2 * DOLLAR)
    (second,) = stage.place(job)
    assert (second.node, second.attempt.resume_artifact) == (spare, saved)
    stage.send_report(second, AttemptState.RUNNING)
    stage.finish(second)
    before = balance(alice.pk, AccountKind.CUSTOMER_AVAILABLE)
    assert offences.judge() == 1
    offence = Offence.objects.get()
    assert (offence.reason, offence.lease_id) == ("false_reason", lease.pk)
    assert balance(alice.pk, AccountKind.CUSTOMER_AVAILABLE) - before == offence.compensated > 0
    assert EndRecord.objects.get(lease_id=lease.pk).fault == "provider"


def test_the_stop_that_was_ordered_names_the_end_whatever_the_node_says(claimed: tuple[Job, Lease]) -> None:
    job, lease = claimed
    lifecycle.stop_leases([lease], Reason.NODE_QUARANTINED)
    stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    refreshed(job, lease)
    assert (stage.newest_attempt(job).reason, lease.charge_usd_micros) == ("node_quarantined", 0)


@pytest.mark.parametrize(
    "reason", [Reason.EXIT_NONZERO, Reason.OUT_OF_MEMORY, Reason.COMPLETED, Reason.BAD_CHECKPOINT, Reason.INTERNAL]
)
def test_a_node_in_quarantine_is_believed_in_no_end_but_its_failure(claimed: tuple[Job, Lease], reason: Reason) -> None:
    job, lease = claimed
    lifecycle.stop_leases([lease], Reason.NODE_QUARANTINED)
    stage.finish(lease, reason, exit_code=1)
    refreshed(job, lease)
    assert (stage.newest_attempt(job).reason, lease.charge_usd_micros) == ("node_quarantined", 0)
    assert job.state == "recovering"


def test_a_missing_image_that_no_customer_named_is_the_nodes_fault(alice: Organisation, bob: Node) -> None:
    """It would end any job as its customer's doing, at once and for good, and leave no mark on the node."""
    job = stage.submit(alice)
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.PREPARING)
    stage.finish(lease, Reason.IMAGE_UNAVAILABLE)
    refreshed(job, bob)
    attempt = stage.newest_attempt(job)
    assert (attempt.reason, attempt.fault, job.state, bob.failures) == ("executor_failed", "provider", "recovering", 1)
    assert placement.request_of(job).demand.avoid == {bob.pk}


@pytest.mark.parametrize(("has_run", "reason"), [(False, "image_unavailable"), (True, "executor_failed")])
def test_a_customers_image_that_ran_was_there(alice: Organisation, bob: Node, has_run: bool, reason: str) -> None:
    job = stage.submit(alice, stage.spec_of(**stage.OWN_COMMAND, image="docker.io/library/python:3.12"))
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.PREPARING)
    if has_run:
        stage.send_report(lease, AttemptState.RUNNING)
    stage.finish(lease, Reason.IMAGE_UNAVAILABLE)
    assert stage.newest_attempt(job).reason == reason


def test_one_word_ends_no_job_whose_image_cannot_be_had(alice: Organisation) -> None:
    """Another provider is asked, whose node may be dearer; where it says the same, it is the customer's."""
    mallory = stage.organisation("mallory")
    for name in ("first", "second"):
        stage.node(name, provider=mallory)
    honest = stage.node("honest", price_usd_micros=2 * DOLLAR)
    job = stage.submit(alice, stage.spec_of(**stage.OWN_COMMAND, image="docker.io/library/python:3.12"))
    (first,) = stage.place(job)
    assert first.node.provider.organisation == mallory
    stage.send_report(first, AttemptState.PREPARING)
    stage.finish(first, Reason.IMAGE_UNAVAILABLE)
    refreshed(job)
    assert (job.state, stage.newest_attempt(job).reason) == ("recovering", "image_unavailable")
    (second,) = stage.place(job)
    assert second.node == honest
    stage.send_report(second, AttemptState.PREPARING)
    stage.finish(second, Reason.IMAGE_UNAVAILABLE)
    refreshed(job)
    assert (job.state, job.reason) == ("failed", "image_unavailable")


def test_a_stop_that_was_ordered_is_paid_as_observed(claimed: tuple[Job, Lease], bob: Node) -> None:
    job, lease = claimed
    lifecycle.cancel(job.pk, actor="alice")
    stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    refreshed(job, lease, bob)
    assert (job.state, lease.billable_ms, bob.failures) == ("cancelled", MINUTES_10 * 1000, 0)


def test_an_agent_that_finds_the_budget_used_up_first_is_believed(alice: Organisation, bob: Node) -> None:
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=3600)  # two dollars last an hour, and no sweep has looked
    stage.bill(lease, ms=3_600_000)
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    refreshed(job, bob)
    assert (job.state, bob.failures) == ("paused", 0)


def test_a_budget_that_may_have_run_out_unseen_is_nobodys_fault_and_not_paid(alice: Organisation, bob: Node) -> None:
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=3000)  # the server was away when it began to run
    Lease.objects.filter(pk=lease.pk).update(active_at=timezone.now() - timedelta(hours=1, minutes=5))
    stage.bill(lease, ms=3_000_000)
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    refreshed(job, lease, bob)
    assert (stage.newest_attempt(job).reason, job.state) == ("internal", "recovering")
    assert (lease.charge_usd_micros, bob.failures) == (0, 0)


def test_a_node_that_blames_its_gang_unordered_blames_itself(alice: Organisation) -> None:
    bob = stage.organisation("bob")
    for name in ("liar", "honest"):
        stage.node(name, fabric="rack", provider=bob)
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}))
    liar, honest = stage.place(job)
    for lease in (liar, honest):
        stage.send_report(lease, AttemptState.RUNNING)
    stage.finish(liar, Reason.GANG_BROKEN)
    stage.finish(honest, Reason.GANG_BROKEN)
    assert stage.newest_attempt(job).reason == "executor_failed"
    assert [Node.objects.get(pk=each.node_id).failures for each in (liar, honest)] == [1, 0]


def test_no_agent_is_sent_a_reason_that_it_may_not_know(claimed: tuple[Job, Lease], bob: Node) -> None:
    _, lease = claimed
    stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    again = LeaseReport(lease_id=lease.id, fence=lease.fence, attempt_id=lease.attempt_id, state=AttemptState.RUNNING)
    _, (wanted,), _ = assignments.desired_state(bob, [again])
    assert (wanted.action, wanted.stop_reason) == ("stop", Reason.LEASE_EXPIRED)


def test_a_lie_told_once_is_not_undone_by_another_report(claimed: tuple[Job, Lease]) -> None:
    job, lease = claimed
    stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    stage.finish(lease, Reason.COMPLETED)
    reports.lose(lease.pk, Reason.NODE_SILENT, "gone")
    assert stage.newest_attempt(job).reason == "false_reason"
