"""Growths that come to nothing cost the gang nothing that it had done before, and never end its attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import sweeps
from jobs.artifacts import uploads
from jobs.bills.bill import make_bill
from jobs.client.verify import lease as verify_lease
from jobs.leases import leasing
from jobs.leases.unpaid import is_unpaid
from jobs.models import Artifact, ArtifactPart, Attempt, Lease
from jobs.running import generations, reports, resizing
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import ArtifactBegin, ArtifactFile, AttemptState, Reason
from tests import stage
from tests.integration.jobs.lifecycle.gang_rows import follow, resumed, save
from tests.integration.jobs.lifecycle.growing_rows import be_ready, grow, joining, known, members, rack, rest, train
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)

FILES = [ArtifactFile(path="weights", size=1, sha256="0" * 64)]


def join(alice, count):
    """A gang of two that so many nodes have joined, none of which runs yet: (job, all leases by rank)."""
    rack(2 + count)
    job, _ = train(alice)
    grow()
    be_ready(joining(job))
    grow()
    assert stage.newest_attempt(job).generation == 1
    assert len(members(job)) == 2 + count
    return job, members(job)


def be_late(job, seconds=resizing.COME_UP_SECONDS + 1):
    Attempt.objects.filter(job=job).update(grown_at=timezone.now() - timedelta(seconds=seconds))
    sweeps.sweep_leases()


def end_badly(leases, reason):
    for lease in leases:
        stage.finish(lease, reason)


def test_two_that_do_not_come_up_are_both_left_behind(alice):
    job, leases = join(alice, 2)
    be_late(job)
    assert [lease.node_rank for lease in members(job)] == [0, 1]
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.resume_artifact.step, attempt.broken_at) == ("running", 10, None)
    assert not any(lease.stop_reason for lease in members(job))
    gone = Lease.objects.filter(pk__in=[lease.pk for lease in leases[2:]])
    assert {(lease.end_reason, lease.charge_units) for lease in gone} == {("never_started", 0)}


def test_of_two_the_other_one_may_still_come_up(alice):
    job, leases = join(alice, 2)
    reports.lose(leases[2].pk, Reason.NODE_SILENT, "")
    assert [lease.node_rank for lease in members(job)] == [0, 1, 3]
    assert members(job)[2].joined_generation == stage.newest_attempt(job).generation == 2
    reports.lose(leases[3].pk, Reason.NODE_SILENT, "")
    assert [lease.node_rank for lease in members(job)] == [0, 1]
    assert stage.newest_attempt(job).state == "running"


def test_two_that_are_lost_together_are_both_left_behind(alice):
    job, leases = join(alice, 2)
    Lease.objects.filter(pk__in=[lease.pk for lease in leases[2:]]).update(
        reported_state=AttemptState.LOST, reported_reason=Reason.NODE_SILENT, reported_at=timezone.now()
    )
    sweeps.sweep_jobs()
    assert [lease.node_rank for lease in members(job)] == [0, 1]
    assert stage.newest_attempt(job).state == "running"


@pytest.mark.parametrize("reason", [Reason.DISK_FULL, Reason.OUT_OF_MEMORY, Reason.EXECUTOR_FAILED])
def test_two_that_run_and_fail_of_the_same_are_both_left_behind(alice, reason):
    job, leases = join(alice, 2)
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING, generation=1)
    resumed(leases[0], 10)
    for lease in leases[2:]:
        stage.finish(lease, reason)
    job.refresh_from_db()
    assert (job.state, job.attempts.count(), stage.newest_attempt(job).state) == ("running", 1, "running")
    assert [lease.node_rank for lease in members(job)] == [0, 1]


def test_a_member_replaced_meanwhile_leaves_the_new_node_its_time(alice):
    job, leases = join(alice, 1)
    reports.lose(leases[1].pk, Reason.NODE_SILENT, "")
    attempt = stage.newest_attempt(job)
    generations.begin(job, attempt, generations.lost_leases(attempt), master_port=attempt.master_port)
    third = Lease.objects.get(pk=leases[2].pk)
    assert (third.joined_generation, third.is_joining) == (2, False)
    assert not resizing.unjoined().exists()
    Attempt.objects.filter(job=job).update(grown_at=timezone.now() - timedelta(seconds=resizing.COME_UP_SECONDS + 1))
    assert list(resizing.unjoined()) == [third]


@pytest.mark.parametrize(
    "reason", [Reason.DISK_FULL, Reason.INTERNAL, Reason.OUT_OF_MEMORY, Reason.UPLOAD_FAILED, Reason.BAD_CHECKPOINT]
)
def test_whatever_a_new_node_fails_of_the_others_go_on(alice, reason):
    job, leases = join(alice, 1)
    third = leases[2]
    stage.see_running(third, seconds=30)
    stage.bill(third, ms=30_000)
    stage.send_report(third, AttemptState.RUNNING, generation=1)
    stage.finish(third, reason)
    job.refresh_from_db()
    third.refresh_from_db()
    assert (job.state, job.attempts.count(), third.charge_units) == ("running", 1, 0)
    assert [lease.node_rank for lease in members(job)] == [0, 1]
    for line in make_bill(job).lines:
        verify_lease._check_time(line)


def test_what_the_customers_program_does_much_later_is_its_own_doing(alice):
    job, leases = join(alice, 1)
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING, generation=1)
    resumed(leases[0], 10)
    since = timezone.now() - timedelta(seconds=generations.JUST_JOINED_SECONDS + 1)
    Attempt.objects.filter(job=job).update(grown_at=since)
    stage.finish(leases[2], Reason.OUT_OF_MEMORY)
    assert {lease.stop_reason for lease in members(job)[:2]} == {"gang_broken"}


def test_what_was_done_before_a_growth_that_failed_stays_paid(alice):
    """Between the checkpoint and the growth they trained, and the growth was nobody's doing."""
    job, leases = join(alice, 1)
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING, generation=1)
    resumed(leases[0], 10)
    for lease in leases[:2]:
        stage.see_running(lease, seconds=150)
        stage.bill(lease, ms=150_000)
    Attempt.objects.filter(job=job).update(grown_at=timezone.now() - timedelta(seconds=50))
    stage.finish(leases[2], Reason.DISK_FULL)
    for lease in members(job):
        ((start, end, _),) = lease.unpaid
        assert (start, end) == (pytest.approx(100_000, abs=3_000), None), "and not from 90 s on, of the checkpoint"


def test_once_the_grown_gang_has_saved_the_reason_counts_as_ever(alice):
    job, leases = join(alice, 1)
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING, generation=1)
    save(job, leases, step=20, ms=110_000)
    stage.finish(leases[2], Reason.INTERNAL)
    assert {lease.stop_reason for lease in members(job)[:2]} == {"gang_broken"}


def test_a_growth_that_ends_the_attempt_leaves_what_was_saved_paid(alice):
    job, leases = join(alice, 1)
    Attempt.objects.filter(job=job).update(generation=generations.GENERATIONS_MAX)
    reports.lose(leases[2].pk, Reason.NEVER_STARTED, "")
    end_badly(leases[:2], Reason.GANG_BROKEN)
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.reason) == ("failed", "never_started")
    lines = {line.lease_id: line for line in make_bill(job).lines}
    assert [lines[lease.pk].billable_ms for lease in leases] == [90_000, 90_000, 0]
    assert all(lines[lease.pk].charge_usd_micros > 0 for lease in leases[:2])
    assert [lines[lease.pk].reason for lease in leases] == ["gang_broken", "gang_broken", "never_started"]
    for line in lines.values():
        verify_lease._check_time(line)


def test_what_was_paid_for_a_checkpoint_goes_with_it(alice):
    """Nobody keeps pay for a worthless checkpoint as the attempt ended for a reason that pays nothing."""
    job, leases = join(alice, 1)
    Attempt.objects.filter(job=job).update(generation=generations.GENERATIONS_MAX)
    reports.lose(leases[2].pk, Reason.NEVER_STARTED, "")
    end_badly(leases[:2], Reason.GANG_BROKEN)
    first = Lease.objects.get(pk=leases[0].pk)
    paid = first.charge_units
    assert paid > 0
    Artifact.objects.filter(job=job, step=10).update(condemned_at=timezone.now())
    assert leasing.recharge(first) == paid
    assert Lease.objects.get(pk=first.pk).charge_units == 0


def test_after_an_attempt_that_grew_and_failed_the_job_does_not_grow(alice):
    rack(3)
    job, _ = train(alice)
    first = stage.newest_attempt(job)
    create_in_state(Attempt, "lost", job=job, number=first.number + 1, slot=1, grown_at=timezone.now())
    assert resizing.may_grow(job, first) is None
    Attempt.objects.filter(job=job, state="lost").update(grown_at=None)
    assert resizing.may_grow(job, first) is not None


def test_a_provider_may_take_a_node_back_that_only_waits(alice):
    rack(3)
    job, _ = train(alice)
    grow()
    (third,) = joining(job)
    be_ready([third])
    stage.finish(third, Reason.NODE_DRAINED)
    third.refresh_from_db()
    assert (third.end_reason, Node.objects.get(pk=third.node_id).failures) == ("node_drained", 0)


def output_of(lease, rank):
    return uploads.begin(lease, ArtifactBegin(kind="output", node_rank=rank, files=FILES), fence=lease.fence)


def test_a_training_that_ends_meanwhile_waits_for_nobody_who_joined(alice):
    job, leases = join(alice, 1)
    caps = sum(int(lease.cap_units) for lease in leases)
    for lease in leases[:2]:
        stage.see_running(lease, seconds=300)
        stage.bill(lease, ms=300_000)
    made = output_of(leases[0], 0)
    assert Artifact.objects.get(pk=made.artifact_id).parts_expected == 2
    third = Lease.objects.get(pk=leases[2].pk)
    assert (third.state, third.end_reason, third.charge_units) == ("ended", "not_joined", 0)
    assert caps - 10 <= sum(int(lease.cap_units) for lease in members(job)) <= caps
    output_of(leases[1], 1)
    for lease in leases[:2]:
        stage.finish(Lease.objects.get(pk=lease.pk))
    job.refresh_from_db()
    assert (job.state, Node.objects.get(pk=third.node_id).failures) == ("completed", 0)
    bill = make_bill(job)
    assert sorted(line.billable_ms for line in bill.lines) == [0, 300_000, 300_000]
    assert sum(line.unpaid_ms for line in bill.lines) == 0


def test_the_output_has_the_ranks_that_the_nodes_know(alice):
    """Who joined took a rank in the middle, and the nodes do not know of it yet."""
    job, leases = join(alice, 1)
    Lease.objects.filter(pk=leases[1].pk).update(node_rank=5)
    Lease.objects.filter(pk=leases[2].pk).update(node_rank=1)
    second = Lease.objects.get(pk=leases[1].pk)
    made = [output_of(second, rank) for rank in (1, 2)]  # as it was, and as one says that knows of it already
    assert {each.artifact_id for each in made} == {Artifact.objects.get(job=job, kind="output").pk}
    assert ArtifactPart.objects.get(artifact__kind="output").node_rank == 1


def test_who_runs_already_is_of_the_gang_that_ends(alice):
    job, leases = join(alice, 1)
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING, generation=1)
    made = output_of(members(job)[0], 0)
    assert Artifact.objects.get(pk=made.artifact_id).parts_expected == 3
    assert len(members(job)) == 3


def shrunk(alice):
    job, leases = join(alice, 1)
    for lease in leases[:2]:
        stage.see_running(lease, seconds=900)
        stage.bill(lease, ms=900_000)
    be_late(job)
    for lease in members(job):
        stage.send_report(lease, AttemptState.RUNNING, generation=2)
    return job, members(job)


def test_a_gang_that_shrank_is_paid_from_its_first_word_on(alice):
    job, leases = shrunk(alice)
    assert all(map(is_unpaid, leases)), "nothing has shown yet that it trains"
    resumed(leases[1], 10)
    assert generations.pay_again(stage.newest_attempt(job)) == 0, "only the first node's word counts"
    resumed(leases[0], 5)
    assert all(map(is_unpaid, members(job))), "that is another checkpoint"
    resumed(leases[0], 10)
    assert not any(map(is_unpaid, members(job)))
    for lease in members(job):
        ((start, end),) = lease.unpaid
        assert start == pytest.approx(100_000 + generations.JOIN_PAID_MS, abs=3_000)
        assert end == pytest.approx(900_000, abs=3_000)


def test_what_the_generation_before_said_pays_nobody(alice):
    """It went on from the same checkpoint; and a node that prepares reports that it runs."""
    rack(3)
    job, leases = train(alice)
    resumed(leases[0], 10)
    grow()
    be_ready(joining(job))
    grow()
    for lease in leases:
        stage.see_running(lease, seconds=900)
    stage.send_report(members(job)[2], AttemptState.RUNNING, generation=1)
    assert all(map(is_unpaid, members(job)[:2]))
    resumed(leases[0], 10)
    assert not any(map(is_unpaid, members(job)))


def test_a_member_that_is_lost_before_the_end_is_no_time_that_they_trained(alice):
    job, leases = join(alice, 2)
    for lease in leases:
        stage.see_running(lease, seconds=300)
    Lease.objects.filter(pk=leases[3].pk).update(running_at=None)
    attempt = stage.newest_attempt(job)
    reports.lose(leases[1].pk, Reason.NODE_SILENT, "")
    generations.begin(job, attempt, generations.lost_leases(attempt), master_port=attempt.master_port)
    output_of(members(job)[0], 0)
    first = members(job)[0]
    assert not is_unpaid(first)
    assert first.unpaid, "they waited for another node in its place"


def test_one_node_that_does_not_run_keeps_the_others_unpaid_whatever_the_first_says(alice):
    job, leases = join(alice, 1)
    for lease in leases[:2]:
        stage.see_running(lease, seconds=900)
    resumed(leases[0], 10)
    assert is_unpaid(members(job)[0])


def test_a_large_checkpoint_may_take_longer_to_fetch(alice):
    job, _ = join(alice, 1)
    Artifact.objects.filter(job=job, step=10).update(size_bytes=24 * 10**9)
    be_late(job, resizing.COME_UP_SECONDS + 1100)
    assert len(members(job)) == 3
    be_late(job, resizing.COME_UP_SECONDS + 1300)
    assert len(members(job)) == 2


def test_who_came_up_in_that_moment_is_not_lost(alice, monkeypatch):
    job, leases = join(alice, 1)
    lose = reports.lose_unjoined

    def come_up(lease_id):
        stage.send_report(leases[2], AttemptState.RUNNING, generation=1)
        return lose(lease_id)

    monkeypatch.setattr(reports, "lose_unjoined", come_up)
    be_late(job)
    assert len(members(job)) == 3


def test_a_growth_whose_node_never_came_up_is_tried_again_later_and_later(alice):
    job, _ = shrunk(alice)
    rack(1)
    follow(members(job), follows_sizes=True)
    resumed(members(job)[0], 10)
    save(job, members(job), step=20, ms=905_000)
    gone = Lease.objects.filter(attempt__job=job, node_rank=2)
    rest(job)
    for minutes, is_rested in ((19, False), (21, True)):
        gone.update(replaced_at=timezone.now() - timedelta(minutes=minutes))
        assert resizing.is_rested(stage.newest_attempt(job)) is is_rested


def test_a_node_with_much_less_memory_is_not_asked(alice):
    nodes = rack(3)
    job, leases = train(alice)
    (free,) = {node.pk for node in nodes} - {lease.node_id for lease in leases}
    memory = min(Device.objects.filter(node_id=leases[0].node_id).values_list("memory_mib", flat=True))
    Device.objects.filter(node_id=free).update(memory_mib=memory // 2)
    assert grow() == 0
    Device.objects.filter(node_id=free).update(memory_mib=memory - memory // 100)
    assert grow() == 1
    assert known(joining(job)[0])
