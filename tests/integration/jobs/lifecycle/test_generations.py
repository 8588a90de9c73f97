"""A gang loses a node: another one takes its place, the others' leases go on, and nobody is paid twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import sweeps
from jobs.artifacts import uploads
from jobs.bills.bill import make_bill
from jobs.client.verify import lease as verify_lease
from jobs.errors import BadManifest, LeaseOver
from jobs.models import Artifact, Attempt, Lease, Stream
from jobs.placing import placement, replacing
from jobs.running import generations, reports, streams
from jobs.running.assignments import desired_state
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import ArtifactBegin, ArtifactFile, Assignment, AttemptState, Reason
from tests import stage
from tests.integration.jobs.lifecycle.gang_rows import MINUTE_MS, follow, report_of, resumed, save
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)


def add_node(rack):
    fourth = stage.node("gang-3", fabric="rack", provider=rack[0].provider.organisation)
    Node.objects.filter(pk=fourth.pk).update(facts=rack[0].facts)


def assignment_of(node, reports_):
    (desired,) = desired_state(Node.objects.get(pk=node.pk), reports_)[1]
    return Assignment.model_validate_json(desired.assignment.payload) if desired.assignment else None


def live(attempt):
    return list(attempt.leases.live().select_related("node", "attempt").order_by("node_rank"))


def test_another_node_takes_the_lost_ones_place_and_the_other_lease_goes_on(gang, rack):
    job, (stays, lost) = gang
    save(job, [stays], step=60, ms=80_000, state="uploading")
    reports.lose(lost.pk, Reason.NODE_SILENT, "The node stopped answering.")
    stays.refresh_from_db()
    assert stays.stop_reason == ""
    assert replacing.replace_lost() == 1
    attempt = Attempt.objects.get(job=job)
    assert (attempt.state, attempt.generation, attempt.resume_artifact.step) == ("running", 1, 50)
    first, second = live(attempt)
    assert first == stays
    assert (second.node_rank, second.node_id) == (
        lost.node_rank,
        ({node.pk for node in rack} - {stays.node_id, lost.node_id}).pop(),
    )
    lost.refresh_from_db()
    assert (lost.state, lost.billable_ms, lost.end_reason) == ("ended", MINUTE_MS, "node_silent")
    assert second.cap_units == lost.cap_units - lost.charge_units
    assert Artifact.objects.get(step=60).state == "abandoned"
    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("running", 1)
    event = Event.objects.get(subject_kind="attempt", data__generation=1)
    assert (event.reason, event.data["lost_nodes"]) == ("node_silent", [str(lost.node_id)])


def test_both_nodes_are_told_the_same_place_and_an_old_report_is_answered_again(gang):
    job, (stays, lost) = gang
    before = assignment_of(stays.node, [])
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    old_version = desired_state(stays.node, [report_of(stays)])[0]
    replacing.replace_lost()
    stays, other = live(stage.newest_attempt(job))
    for lease, known in ((stays, [report_of(stays)]), (other, [])):
        told = assignment_of(lease.node, known)
        assert (told.generation, told.resume_artifact_id) == (1, stage.newest_attempt(job).resume_artifact_id)
        assert (told.gang.nodes, told.gang.node_rank) == (2, lease.node_rank)
        assert told.gang.master_port != before.gang.master_port
    assert assignment_of(stays.node, [report_of(stays, generation=1)]) is None
    assert desired_state(stays.node, [report_of(stays)])[0] != old_version


def test_what_is_done_again_and_the_waiting_are_not_paid(gang):
    job, (stays, lost) = gang
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    stays, other = live(stage.newest_attempt(job))
    stage.see_running(stays, seconds=130)
    stage.send_report(other, AttemptState.PREPARING)
    stays.refresh_from_db()
    assert stays.unpaid == [[MINUTE_MS, None, 0]]
    stage.send_report(other, AttemptState.RUNNING)
    stays.refresh_from_db()
    assert stays.unpaid == [[MINUTE_MS, None, 0]], "a node that prepares runs, too"
    resumed(stays, 50)
    stays.refresh_from_db()
    ((start, end),) = stays.unpaid
    assert (start, end) == (MINUTE_MS, pytest.approx(130_000, abs=500))
    for lease, seconds in ((stays, 200), (other, 70)):
        stage.see_running(lease, seconds=seconds)
        stage.bill(lease, ms=seconds * 1000)
        stage.finish(lease)
    job.refresh_from_db()
    assert job.state == "completed"
    bill = make_bill(job)
    assert [line.reason for line in bill.lines] == ["completed", "node_silent", "completed"]
    assert [line.billable_ms for line in bill.lines] == [200_000 - (end - start), MINUTE_MS, 70_000]
    assert bill.lines[0].unpaid_ms == end - start
    assert bill.total_usd_micros + bill.released_usd_micros == bill.hold_usd_micros
    for line in bill.lines:
        verify_lease._check_time(line)


def test_without_another_node_the_whole_attempt_ends_as_before(gang, rack):
    job, (stays, lost) = gang
    Node.objects.exclude(pk__in=[stays.node_id, lost.node_id]).update(state="offline")
    reports.lose(lost.pk, Reason.NODE_SILENT, "The node stopped answering.")
    assert replacing.replace_lost() == 0
    stays.refresh_from_db()
    assert stays.stop_reason == ""
    Attempt.objects.filter(job=job).update(broken_at=clock.now() - timedelta(seconds=generations.REPLACE_SECONDS + 1))
    sweeps.sweep_jobs()
    stays.refresh_from_db()
    assert stays.stop_reason == Reason.GANG_BROKEN
    stage.finish(stays, Reason.GANG_BROKEN)
    job.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, attempt.reason, attempt.generation) == ("recovering", "node_silent", 0)
    stays.refresh_from_db()
    assert stays.billable_ms == MINUTE_MS


@pytest.mark.parametrize(
    "change",
    ["own command", "old program", "no checkpoint", "the customer's fault", "cancelled", "stopping"],
)
def test_who_cannot_go_on_is_stopped_at_once(alice, rack, change):
    spec = {"resources": {"gpus": 2, "nodes": 2, "kind": "any"}} | (
        stage.OWN_COMMAND if change == "own command" else {}
    )
    job, (stays, lost) = stage.running_job(alice, **spec)
    if change != "old program":
        follow([stays, lost])
    if change != "no checkpoint":
        save(job, [stays, lost], step=50, ms=1000)
    if change == "cancelled":
        type(job).objects.filter(pk=job.pk).update(cancel_requested_at=clock.now())
    if change == "stopping":
        stage.send_report(stays, AttemptState.STOPPING)
    stage.finish(lost, Reason.OUT_OF_MEMORY if change == "the customer's fault" else Reason.DEVICE_FAILED)
    stays.refresh_from_db()
    assert stays.stop_reason == Reason.GANG_BROKEN


def test_a_second_loss_without_progress_ends_the_attempt(gang, rack):
    job, (stays, lost) = gang
    add_node(rack)
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    assert replacing.replace_lost() == 1
    stays, other = live(stage.newest_attempt(job))
    stage.send_report(other, AttemptState.RUNNING)
    reports.lose(other.pk, Reason.NODE_SILENT, "")
    stays.refresh_from_db()
    assert stays.stop_reason == Reason.GANG_BROKEN


def test_a_second_loss_after_progress_makes_a_third_generation(gang, rack):
    job, (stays, lost) = gang
    add_node(rack)
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    assert replacing.replace_lost() == 1
    stays, other = live(stage.newest_attempt(job))
    stage.send_report(other, AttemptState.RUNNING)
    resumed(stays, 50)
    save(job, [stays, other], step=60, ms=150_000)
    reports.lose(other.pk, Reason.NODE_SILENT, "")
    assert replacing.replace_lost() == 1
    attempt = stage.newest_attempt(job)
    stays, third = live(attempt)
    assert (attempt.generation, attempt.resume_artifact.step) == (2, 60)
    assert third.node_id not in {stays.node_id, lost.node_id, other.node_id}
    assert len(stays.unpaid) == 2
    assert stays.unpaid[1] == [150_000, None, 0]


def test_the_log_of_a_rank_goes_on_with_the_other_nodes(gang):
    job, (_, lost) = gang
    streams.append(lost, Stream.LOG, fence=lost.fence, offset=0, data=b"before\n")
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    _, other = live(stage.newest_attempt(job))
    streams.append(other, Stream.LOG, fence=other.fence, offset=0, data=b"after\n")
    page = streams.read_stream(job, Stream.LOG, node_rank=1)
    assert page.text == "before\n"
    page = streams.read_stream(job, Stream.LOG, node_rank=1, offset=page.next_offset)
    assert (page.text, page.next_offset, page.is_complete) == ("after\n", 13, False)
    with pytest.raises(LeaseOver):
        streams.append(Lease.objects.get(pk=lost.pk), Stream.LOG, fence=lost.fence, offset=7, data=b"late")


def test_a_second_look_replaces_nothing_more(gang):
    job, (_, lost) = gang
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    assert (replacing.replace_lost(), replacing.replace_lost()) == (1, 0)
    assert Lease.objects.filter(attempt__job=job).count() == 3


def test_an_agent_that_comes_back_is_told_to_stop(gang):
    job, (_, lost) = gang
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    (desired,) = desired_state(Node.objects.get(pk=lost.node_id), [report_of(lost)])[1]
    assert desired.action == "stop"
    lost.refresh_from_db()
    stage.send_report(lost, AttemptState.RUNNING)
    assert placement.place_batch() == 0
    assert stage.newest_attempt(job).generation == 1


def test_a_reading_that_its_node_made_up_makes_no_pay_negative(gang, rack):
    job, (stays, lost) = gang
    add_node(rack)
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    stays, other = live(stage.newest_attempt(job))
    stage.see_running(stays, seconds=130)
    stage.send_report(other, AttemptState.RUNNING)
    resumed(stays, 50)
    save(job, [stays, other], step=60, ms=0)
    reports.lose(other.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    stays.refresh_from_db()
    ((_, first_end), (second_start, *_)) = stays.unpaid
    assert second_start == first_end
    assert stays.paid_of(200_000) == MINUTE_MS


def test_a_node_that_never_says_that_it_runs_keeps_nobody_unpaid(gang):
    job, (_, lost) = gang
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    stays, other = live(stage.newest_attempt(job))
    stage.send_report(other, AttemptState.PREPARING)
    save(job, [stays, other], step=60, ms=150_000)
    sweeps.sweep_jobs()
    stays.refresh_from_db()
    assert stays.unpaid[-1][1] is not None


def test_only_a_node_whose_agent_knows_generations_takes_the_place(gang, rack):
    _, (stays, lost) = gang
    Node.objects.exclude(pk__in=[stays.node_id, lost.node_id]).update(facts={"gang": "address"})
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    assert replacing.replace_lost() == 0


def test_whose_rank_only_followed_is_not_replaced(gang):
    _, (stays, follower) = gang
    stage.finish(follower, Reason.PROCESS_VANISHED, exit_code=134)
    stays.refresh_from_db()
    assert stays.stop_reason == Reason.GANG_BROKEN


def test_who_is_lost_while_the_output_is_sent_is_not_replaced(gang):
    job, (stays, lost) = gang
    attempt = stage.newest_attempt(job)
    create_in_state(Artifact, "uploading", organisation=job.organisation, job=job, attempt=attempt, kind="output")
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    stays.refresh_from_db()
    assert stays.stop_reason == Reason.GANG_BROKEN


def test_a_replaced_node_is_remembered_and_avoided(gang):
    job, (_, lost) = gang
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    assert Node.objects.get(pk=lost.node_id).failures == 1
    assert lost.node_id in placement.request_of(job).demand.avoid


def test_parts_of_the_generation_before_are_refused(gang):
    job, (_, lost) = gang
    reports.lose(lost.pk, Reason.NODE_SILENT, "")
    replacing.replace_lost()
    stays, _ = live(stage.newest_attempt(job))
    file = ArtifactFile(path="weights", size=1, sha256="0" * 64)
    old = ArtifactBegin(kind="checkpoint", step=60, billable_ms=1, node_rank=0, files=[file])
    with pytest.raises(BadManifest, match="generation 1, not 0"):
        uploads.begin(stays, old, fence=stays.fence)
    made = uploads.begin(stays, old.model_copy(update={"generation": 1}), fence=stays.fence)
    assert Artifact.objects.get(pk=made.artifact_id).generation == 1
