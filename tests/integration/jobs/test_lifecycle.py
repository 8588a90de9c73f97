"""The story of jobs/lifecycle.py, told by reports: the happy path first, then everything that can go wrong."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from billing.balances import balance, trial_balance
from billing.kinds import AccountKind
from billing.models import Account
from jobs import assignments, lifecycle, placement, reports, sweeps
from jobs.errors import CapTooLow, InputNotReady, JobEnded, NotEnoughMoney, QuoteUsed
from jobs.models import Artifact, ArtifactPart, Job, Lease, LeaseDevice
from marketplace.foundation import signing
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, LeaseReport, Reason, verify_assignment
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice():
    return stage.organisation("alice", usd_micros=5 * DOLLAR)


@pytest.fixture
def bob():
    return stage.node("bobs-node")


def running_job(alice, **changes):
    job = stage.submit(alice, stage.spec_of(**changes))
    leases = stage.place(job)
    for lease in leases:
        stage.say(lease, AttemptState.PREPARING)
        stage.say(lease, AttemptState.RUNNING)
    job.refresh_from_db()
    return job, leases


def checkpoint(job: Job, lease: Lease, *, step: int, ms: int) -> Artifact:
    artifact = Artifact.objects.create(
        organisation=job.organisation, job=job, attempt=lease.attempt, kind="checkpoint", step=step, state="complete"
    )
    ArtifactPart.objects.create(artifact=artifact, lease=lease, files=[], billable_ms=ms, is_complete=True)
    return artifact


def earned(node: Node) -> int:
    owner = node.provider.organisation_id
    return balance(owner, AccountKind.PROVIDER_PENDING) + balance(owner, AccountKind.PROVIDER_AVAILABLE)


def test_a_job_that_completes_pays_its_provider_to_the_micro_dollar(alice, bob):
    job, (lease,) = running_job(alice)
    assert job.state == "running"
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 3 * DOLLAR  # the cap is held, not charged
    stage.see_running(lease, seconds=1800)
    stage.bill(lease, ms=1_800_000)  # half an hour of two devices at a dollar each
    stage.finish(lease)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("completed", "completed")
    assert earned(bob) == 900_000
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 4 * DOLLAR
    assert set(trial_balance().values()) == {0}
    assert not LeaseDevice.objects.filter(is_live=True).exists()


def test_every_move_of_a_job_is_an_event(alice, bob):
    job, (lease,) = running_job(alice)
    stage.finish(lease)
    moves = Event.objects.filter(subject_kind="job", subject_id=job.id).order_by("id")
    assert list(moves.values_list("to_state", flat=True)) == ["queued", "placed", "running", "completed"]


def test_submit_without_the_money_says_how_much_is_missing_and_changes_nothing(bob):
    poor = stage.organisation("poor", usd_micros=DOLLAR // 2)
    with pytest.raises(NotEnoughMoney) as refused:
        stage.submit(poor)
    assert refused.value.details["missing_usd_micros"] == 1_500_000
    assert refused.value.status == 402
    assert not Job.objects.exists()


def test_one_quote_makes_one_job(alice, bob):
    job = stage.submit(alice)
    with pytest.raises(QuoteUsed):
        lifecycle.submit(organisation=alice, user=None, spec=stage.spec_of(), quote_id=job.quote_id)


def test_an_input_that_is_still_uploading_cannot_be_submitted(alice, bob):
    draft = Artifact.objects.create(organisation=alice, kind="input")
    with pytest.raises(InputNotReady):
        stage.submit(alice, input_artifact=draft)


def test_the_assignment_is_signed_for_this_node_and_carries_the_job_and_its_secrets(alice, bob):
    job = stage.submit(alice, stage.spec_of(secrets=["TOKEN"]), secrets={"TOKEN": "s3cret"})
    (lease,) = stage.place(job)
    _version, (wanted,), forget = assignments.desired_state(bob, [])
    assignment = verify_assignment(signing.server_public_key_hex(), wanted.assignment)
    assert (wanted.action, forget) == ("run", [])
    assert (assignment.node_id, assignment.lease_id, assignment.fence) == (bob.id, lease.id, lease.fence)
    assert assignment.secrets == {"TOKEN": "s3cret"}
    assert assignment.device_uuids == ["bobs-node-0", "bobs-node-1"]
    assert assignment.program.config["steps"] == 100
    job.refresh_from_db()
    assert "s3cret" not in job.sealed_secrets


def test_the_desired_state_is_the_same_however_often_it_is_asked(alice, bob):
    stage.place(stage.submit(alice))
    first, second = (assignments.desired_state(bob, []) for _ in range(2))
    assert first[0] == second[0]


def test_secrets_are_erased_when_the_job_ends(alice, bob):
    job = stage.submit(alice, stage.spec_of(secrets=["TOKEN"]), secrets={"TOKEN": "s3cret"})
    lifecycle.cancel(job.id, actor="alice")
    job.refresh_from_db()
    assert job.sealed_secrets == ""


def test_secrets_beyond_their_limit_are_refused_and_nothing_is_submitted(alice, bob):
    with pytest.raises(BadRequest):
        stage.submit(alice, stage.spec_of(secrets=["TOKEN"]), secrets={"TOKEN": "x" * 100_000})
    assert not Job.objects.exists()


# --- a node that falls silent


def test_a_silent_node_loses_its_attempt_and_the_job_recovers_elsewhere_from_the_checkpoint(alice, bob):
    spare = stage.node("spare", price_usd_micros=2 * DOLLAR)
    job, (lease,) = running_job(alice)
    assert lease.node == bob
    stage.see_running(lease, seconds=600)
    saved = checkpoint(job, lease, step=50, ms=360_000)
    stage.bill(lease, ms=600_000)
    Node.objects.filter(pk=bob.pk).update(last_seen_at=timezone.now() - timedelta(seconds=18))
    assert sweeps.sweep_silent_nodes() == 1
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
    _job, (lease,) = running_job(alice)
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    lease.refresh_from_db()
    assert (lease.billable_ms, lease.charge_usd_micros) == (0, 0)


def test_a_partial_checkpoint_is_never_resumed_from(alice, bob):
    stage.node("spare")
    job, (lease,) = running_job(alice)
    whole = checkpoint(job, lease, step=10, ms=1)
    partial = checkpoint(job, lease, step=20, ms=2)
    Artifact.objects.filter(pk=partial.pk).update(state="uploading")
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    (second,) = stage.place(job)
    assert second.attempt.resume_artifact == whole


def test_both_providers_of_a_recovered_job_are_paid_for_what_counted(alice, bob):
    spare = stage.node("spare", price_usd_micros=2 * DOLLAR)
    job, (first,) = running_job(alice)
    stage.see_running(first, seconds=600)
    checkpoint(job, first, step=50, ms=360_000)
    stage.bill(first, ms=600_000)
    reports.lose(first.id, Reason.NODE_SILENT, "gone")
    (second,) = stage.place(job)
    assert second.node == spare
    stage.say(second, AttemptState.RUNNING)
    stage.see_running(second, seconds=360)
    stage.bill(second, ms=360_000)
    stage.finish(second)
    job.refresh_from_db()
    assert job.state == "completed"
    assert (earned(bob), earned(spare)) == (180_000, 360_000)
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 5 * DOLLAR - 600_000


def test_an_agent_that_restarts_without_its_lease_has_lost_it(alice, bob):
    stage.node("spare")
    job, (lease,) = running_job(alice)
    reports.apply_reports(lease.node, [], boot_id=uuid4(), received_at=timezone.now())
    job.refresh_from_db()
    assert (job.state, job.reason) == ("recovering", "process_vanished")


def test_a_job_that_is_lost_too_often_fails(alice, bob):
    job, (lease,) = running_job(alice, retry={"max_attempts": 1})
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    job.refresh_from_db()
    assert (job.state, job.reason) == ("failed", "node_silent")
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 5 * DOLLAR


# --- words that no longer count


def test_a_report_with_an_old_fence_is_not_heard(alice, bob):
    job, (lease,) = running_job(alice)
    stage.say(lease, AttemptState.FAILED, fence=lease.fence - 1, reason=Reason.EXIT_NONZERO)
    job.refresh_from_db()
    assert job.state == "running"


def test_a_report_of_another_node_is_not_heard(alice, bob):
    job, (lease,) = running_job(alice)
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
    job, (lease,) = running_job(alice)
    stage.finish(lease)
    stage.finish(lease, Reason.EXIT_NONZERO)
    job.refresh_from_db()
    assert job.state == "completed"


def test_the_same_sync_twice_changes_nothing(alice, bob):
    _job, (lease,) = running_job(alice)
    before = Event.objects.count()
    stage.say(lease, AttemptState.RUNNING)
    assert Event.objects.count() == before


def test_a_lease_that_the_server_gave_up_is_told_to_stop_and_then_forgotten(alice, bob):
    _job, (lease,) = running_job(alice)
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


# --- the customer's own doing


def test_the_customers_own_failure_is_billed_and_not_tried_again(alice, bob):
    job, (lease,) = running_job(alice)
    stage.see_running(lease, seconds=36)
    stage.bill(lease, ms=36_000)
    stage.finish(lease, Reason.EXIT_NONZERO, exit_code=3, message="exit 3")
    job.refresh_from_db()
    assert (job.state, job.reason, job.message) == ("failed", "exit_nonzero", "exit 3")
    assert earned(bob) == 18_000


def test_a_failure_that_the_job_file_names_is_tried_again(alice, bob):
    job, (lease,) = running_job(alice, retry={"max_attempts": 3, "on": ["exit_nonzero"]})
    stage.finish(lease, Reason.EXIT_NONZERO)
    job.refresh_from_db()
    assert job.state == "recovering"


@pytest.mark.parametrize("until", ["queued", "placed", "running", "recovering"])
def test_cancel_works_in_every_state(alice, bob, until):
    job = stage.submit(alice)
    if until != "queued":
        (lease,) = stage.place(job)
        if until in {"running", "recovering"}:
            stage.say(lease, AttemptState.RUNNING)
        if until == "recovering":
            reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    lifecycle.cancel(job.id, actor="alice")
    if until in {"placed", "running"}:
        lease.refresh_from_db()
        assert lease.stop_reason == Reason.CANCELLED_BY_CUSTOMER
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("cancelled", "cancelled_by_customer")
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 5 * DOLLAR
    lifecycle.cancel(job.id, actor="alice")  # twice is harmless


def test_a_completed_job_cannot_be_cancelled(alice, bob):
    job, (lease,) = running_job(alice)
    stage.finish(lease)
    with pytest.raises(JobEnded):
        lifecycle.cancel(job.id, actor="alice")


def test_a_cancelled_job_whose_node_falls_silent_is_still_cancelled(alice, bob):
    job, (lease,) = running_job(alice)
    lifecycle.cancel(job.id, actor="alice")
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    job.refresh_from_db()
    assert job.state == "cancelled"


# --- budget and deadline


def test_a_job_that_used_up_its_budget_saves_pauses_and_goes_on_with_a_higher_one(alice, bob):
    job, (lease,) = running_job(alice)
    stage.see_running(lease, seconds=3590)  # two dollars last an hour
    assert sweeps.sweep_jobs() >= 1
    lease.refresh_from_db()
    assert lease.stop_reason == Reason.BUDGET_EXHAUSTED
    stage.bill(lease, ms=3_590_000)
    saved = checkpoint(job, lease, step=80, ms=3_590_000)
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    job.refresh_from_db()
    assert job.state == "paused"
    with pytest.raises(CapTooLow):
        lifecycle.resume(job.id, cap_usd_micros=2 * DOLLAR, actor="alice")
    lifecycle.resume(job.id, cap_usd_micros=4 * DOLLAR, actor="alice")
    (second,) = stage.place(job)
    assert second.attempt.resume_artifact == saved


def test_the_cap_of_a_job_that_waits_can_be_raised_and_its_hold_follows(alice, bob):
    job, (lease,) = running_job(alice)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    lifecycle.resume(job.id, cap_usd_micros=3 * DOLLAR, actor="alice")
    job.refresh_from_db()
    assert (job.state, job.cap_usd_micros) == ("recovering", 3 * DOLLAR)
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 2 * DOLLAR


def test_a_job_past_its_deadline_is_stopped(alice, bob):
    job, (lease,) = running_job(alice, budget={"max_total": "2.00", "deadline": "1h"})
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


# --- gangs, drains, and what never started


def test_a_gang_is_placed_whole_on_one_fabric_and_fails_whole(alice):
    bob = stage.organisation("bob")
    nodes = [stage.node(f"gang-{i}", fabric="rack", provider=bob) for i in range(2)]
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}))
    first, second = stage.place(job)
    assert {first.node, second.node} == set(nodes)
    stage.say(first, AttemptState.RUNNING)
    job.refresh_from_db()
    assert job.state == "placed"  # it runs when all of it runs
    stage.say(second, AttemptState.RUNNING)
    job.refresh_from_db()
    assert job.state == "running"
    stage.finish(first, Reason.DEVICE_FAILED, message="Xid 79")
    second.refresh_from_db()
    assert second.stop_reason == Reason.GANG_BROKEN
    stage.finish(second, Reason.GANG_BROKEN)
    job.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, attempt.reason, attempt.message) == ("recovering", "device_failed", "Xid 79")


def test_the_job_stays_open_until_the_last_byte_of_its_log_is_here(alice, bob):
    job, (lease,) = running_job(alice)
    stage.say(lease, AttemptState.SUCCEEDED, reason=Reason.COMPLETED, log_bytes=10)
    job.refresh_from_db()
    assert job.state == "running"
    Lease.objects.filter(pk=lease.pk).update(log_bytes=10)
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert job.state == "completed"


def test_bytes_that_never_come_are_not_waited_for_without_end(alice, bob):
    job, (lease,) = running_job(alice)
    stage.say(lease, AttemptState.SUCCEEDED, reason=Reason.COMPLETED, log_bytes=10)
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
    _job, (lease,) = running_job(alice)
    Node.objects.filter(pk=bob.pk).update(state="quarantined")
    sweeps.sweep_jobs()
    lease.refresh_from_db()
    assert lease.stop_reason == Reason.NODE_QUARANTINED


# --- one row's trouble stays its own


def test_a_message_that_a_customer_made_up_silences_no_node(alice, bob):
    job, (lease,) = running_job(alice)
    stage.finish(lease, Reason.EXIT_NONZERO, message="a\0b")
    job.refresh_from_db()
    assert (job.state, job.message) == ("failed", "a\ufffdb")


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


def test_a_job_resumed_with_a_higher_budget_than_its_file_names_is_placed(alice, bob):
    job, (lease,) = running_job(alice)
    stage.see_running(lease, seconds=3590)
    stage.bill(lease, ms=3_590_000)
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    lifecycle.resume(job.id, cap_usd_micros=4 * DOLLAR, actor="alice")
    demand = placement._request(Job.objects.get(pk=job.id)).demand
    assert demand.cap_usd_micros == 4 * DOLLAR - lease_charge(lease)
    assert stage.place(job)


def test_of_a_gang_only_the_node_that_broke_it_is_blamed(alice):
    bob = stage.organisation("bob")
    for name in ("guilty", "innocent"):
        stage.node(name, fabric="rack", provider=bob)
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}))
    guilty, innocent = stage.place(job)
    stage.finish(guilty, Reason.DEVICE_FAILED)
    stage.finish(innocent, Reason.GANG_BROKEN)
    assert [Node.objects.get(pk=each.node_id).failures for each in (guilty, innocent)] == [1, 0]
    assert placement._request(Job.objects.get(pk=job.id)).demand.avoid == {guilty.node_id}


def lease_charge(lease: Lease) -> int:
    lease.refresh_from_db()
    assert lease.charge_usd_micros is not None
    return lease.charge_usd_micros
