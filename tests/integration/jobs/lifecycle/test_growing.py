"""A training with a range of nodes grows where that is cheap: who is invited and joins, and what nobody gains by it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import Sum
from django.utils import timezone

from billing import prices
from billing.books import deposits
from billing.models import Asset, Hold
from billing.rails.registry import source_of
from jobs import lifecycle, sweeps
from jobs.api.job_views import show_job
from jobs.artifacts import uploads
from jobs.bills.bill import make_bill
from jobs.client.verify import lease as verify_lease
from jobs.errors import BadManifest
from jobs.leases import joining as joins
from jobs.leases.sharing import MARGIN_MS
from jobs.matching.reservations import Reservations
from jobs.models import Artifact, Attempt, Job, Lease
from jobs.placing import growing, placement
from jobs.running import generations, reports, resizing
from jobs.running.assignments import desired_state
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import ArtifactBegin, ArtifactFile, AttemptState, Reason, charge
from tests import stage
from tests.integration.jobs.lifecycle.gang_rows import follow, report_of, resumed, save
from tests.integration.jobs.lifecycle.growing_rows import (
    PRICE,
    RANGE,
    SLOW,
    assignment_of,
    be_ready,
    grow,
    grown,
    joining,
    known,
    members,
    rack,
    rest,
    train,
)
from tests.row_states import create_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def wait_in_vain(job):
    """No other node takes the lost one's place in time."""
    since = timezone.now() - timedelta(seconds=generations.REPLACE_SECONDS + 1)
    Attempt.objects.filter(job=job).update(broken_at=since)
    sweeps.sweep_jobs()


def test_a_node_is_invited_and_the_gang_trains_on_without_it(alice):
    nodes = rack(3)
    job, leases = train(alice)
    before = [assignment_of(lease) for lease in leases]
    assert grow() == 1
    (third,) = joining(job)
    assert third.node_id == ({node.pk for node in nodes} - {lease.node_id for lease in leases}).pop()
    assert (third.node_rank, third.cap_units, third.state) == (2, 0, "reserved")
    assert [assignment_of(lease) for lease in leases] == before
    told = assignment_of(third)
    assert (told.joins_next, told.generation, told.resume_artifact_id) == (True, 0, None)
    assert (told.gang.nodes, told.gang.node_rank) == (3, 2)
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.generation) == ("running", 0)
    assert grow() == 0, "it is not ready"


def test_once_it_is_ready_all_go_on_in_another_generation(alice):
    rack(3)
    job, _ = train(alice)
    grow()
    be_ready(joining(job))
    assert grow() == 1
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.generation, attempt.resume_artifact.step) == ("running", 1, 10)
    for rank, lease in enumerate(members(job)):
        told = assignment_of(lease, known(lease))
        assert (told.joins_next, told.generation, told.resume_artifact_id) == (False, 1, attempt.resume_artifact_id)
        assert (told.gang.nodes, told.gang.node_rank) == (3, rank)
        assert told.cap_usd_micros == lease.cap_units > 0
        assert told.seconds_max > 1
        assert assignment_of(lease, known(lease, generation=1)) is None
    event = Event.objects.get(subject_kind="attempt", reason=generations.GROWN)
    assert (event.data["grown_to"], event.data["resumed_step"], event.data["lost_nodes"]) == (3, 10, [])
    (shown,) = show_job(job).attempts
    assert [(each.number, each.reason, each.grown_to) for each in shown.generations] == [(1, "grown", 3)]
    assert attempt.growth_usd_micros > 0
    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("running", 1)


def test_nobody_goes_unpaid_for_a_growth_that_is_quick(alice):
    rack(3)
    job, leases = grown(alice)
    assert [lease.unpaid for lease in leases] == [[], [], []]
    for lease, seconds in zip(leases, (200, 200, 80), strict=True):
        stage.see_running(lease, seconds=seconds)
        stage.bill(lease, ms=seconds * 1000)
        stage.finish(lease)
    job.refresh_from_db()
    assert job.state == "completed"
    bill = make_bill(job)
    assert [line.billable_ms for line in bill.lines] == [200_000, 200_000, 80_000]
    assert [line.unpaid_ms for line in bill.lines] == [0, 0, 0]
    assert bill.total_usd_micros + bill.released_usd_micros == bill.hold_usd_micros
    for line in bill.lines:
        verify_lease._check_time(line)


def test_who_keeps_the_others_waiting_is_not_paid_for_it(alice):
    """Nodes of a fabric are one provider's: one that never comes up would pay for the idle others."""
    rack(3)
    job, leases = train(alice)
    grow()
    be_ready(joining(job))
    grow()
    for lease in leases:
        stage.see_running(lease, seconds=400)
    third = members(job)[2]
    stage.send_report(third, AttemptState.RUNNING, generation=1)
    resumed(leases[0], 10)
    first = Lease.objects.get(pk=leases[0].pk)
    ((start, end),) = first.unpaid
    assert start == pytest.approx(100_000 + generations.JOIN_PAID_MS, abs=2_000)
    assert end == pytest.approx(400_000, abs=2_000)


def test_what_the_leases_may_cost_together_never_grows(alice):
    rack(3)
    job, leases = train(alice)
    before = sum(lease.cap_units for lease in leases)
    for round_ in range(2):
        if round_:
            rack(1)
            save(job, members(job), step=20 + round_, ms=120_000)
            rest(job)
            for lease in members(job):
                stage.see_running(lease, seconds=130)
        earned = {lease.pk: charge(lease.rate_units_per_hour, lease.observed_ms + MARGIN_MS) for lease in members(job)}
        assert grow() == 1
        assert sum(lease.cap_units for lease in Lease.objects.live().filter(attempt__job=job)) <= before
        be_ready(joining(job))
        assert grow() == 1
        caps = Lease.objects.live().filter(attempt__job=job).aggregate(units=Sum("cap_units"))["units"]
        assert before - 10 <= caps <= before
        for lease in members(job):
            assert lease.cap_units >= earned.get(lease.pk, 1)
            assert lease.cap_usd_micros == lease.cap_units
            stage.send_report(lease, AttemptState.RUNNING, generation=round_ + 1)
        resumed(members(job)[0], 21 if round_ else 10)
    assert len(members(job)) == 4


def test_in_a_token_the_caps_are_shared_to_the_base_unit_and_signed(alice):
    asset = Asset.objects.create(id=7, code="WETH", scale=18, kind="erc20", chain_id=31337, contract="0x" + "ab" * 20)
    prices.set_price(asset.pk, 3_123_456_789, actor="operator")
    deposits.credit(
        alice.id, 10**18, reference="31337:0xa:0", actor="chain", source=source_of("chain"), asset_id=asset.pk
    )
    for node in rack(3):
        node.facts |= {"has_token_receipts": True}
        node.save(update_fields=["facts"])
    job, leases = train(alice, payment={"asset": "WETH"})
    caps = [int(lease.cap_units) for lease in leases]
    held = int(Hold.objects.get(job_id=job.pk).amount)
    assert held - 10 <= sum(caps) <= held
    grow()
    be_ready(joining(job))
    assert grow() == 1
    after = members(job)
    assert sum(caps) - 10 <= sum(int(lease.cap_units) for lease in after) <= sum(caps)
    for lease in after:
        told = assignment_of(lease, known(lease))
        assert told.cap == int(lease.cap_units) == lease.payment_terms.cap > 0
        assert told.payment.model_copy(update={"cap": 0}) == lease.payment_terms.model_copy(update={"cap": 0})
    for lease in after:
        stage.see_running(lease, seconds=120)
        stage.bill(lease, ms=120_000)
        stage.send_report(lease, AttemptState.RUNNING, generation=1)
    for lease in members(job):
        stage.finish(lease)
    bill = make_bill(job)
    assert bill.total_units + bill.released_units == bill.hold_units == held


def test_both_free_nodes_are_invited_where_that_is_cheap(alice):
    rack(4)
    job, _ = train(alice)
    grow()
    assert [lease.node_rank for lease in joining(job)] == [2, 3]


@pytest.mark.parametrize(
    "change",
    [
        "whole number",
        "no checkpoint",
        "an old checkpoint",
        "cancelled",
        "an output",
        "an old launcher",
        "not paid again",
        "a lost peer",
        "grown a moment ago",
    ],
)
def test_who_is_not_to_grow_does_not(alice, change):
    rack(3)
    job, leases = train(alice, resources=RANGE | ({"nodes": 2} if change == "whole number" else {}))
    attempts, mine = Attempt.objects.filter(job=job), Lease.objects.filter(attempt__job=job)
    if change == "no checkpoint":
        Artifact.objects.filter(job=job).update(condemned_at=timezone.now())
    elif change == "an old checkpoint":
        attempts.update(generation=1)
    elif change == "cancelled":
        Job.objects.filter(pk=job.pk).update(cancel_requested_at=timezone.now())
    elif change == "an output":
        attempt = attempts.get()
        create_in_state(Artifact, "uploading", organisation=job.organisation, job=job, attempt=attempt, kind="output")
    elif change == "an old launcher":
        mine.filter(pk=leases[0].pk).update(follows_sizes=False)
    elif change == "not paid again":
        mine.filter(pk=leases[0].pk).update(unpaid=[[1000, None, 0]])
    elif change == "a lost peer":
        attempts.update(suspected_at=timezone.now())
    elif change == "grown a moment ago":
        attempts.update(grown_at=timezone.now())
    assert grow() == 0
    assert not joining(job)


@pytest.mark.parametrize(
    "other", [{"price": 2 * PRICE}, {"flops": 0.4 * SLOW}, {"features": (generations.FEATURE,)}, {"name": "elsewhere"}]
)
def test_no_node_is_invited_that_is_not_worth_it(alice, other):
    rack(2)
    job, _ = train(alice)
    rack(1, **other)
    assert grow() == 0
    assert not joining(job)


def test_little_that_is_left_is_not_worth_a_start(alice):
    rack(3)
    job, leases = train(alice)
    Job.objects.filter(pk=job.pk).update(progress={"steps_total": 100, "step": 99})
    save(job, leases, step=99, ms=95_000)
    assert grow() == 0


def test_a_cap_that_does_not_pay_for_it_keeps_a_gang_as_it_is(alice):
    rack(3)
    job, _ = train(alice, budget={"max_total": "1.35"})
    Lease.objects.filter(attempt__job=job).update(cap_usd_micros=500_000, cap_units=500_000)
    assert grow() == 0


@pytest.mark.parametrize(("priority", "is_grown"), [(50, False), (80, False), (20, True)])
def test_who_waits_for_the_node_goes_first(alice, priority, is_grown):
    rack(3)
    job, _ = train(alice)
    other = stage.organisation("carol", usd_micros=50 * DOLLAR)
    waits = stage.submit(other, stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}))
    Job.objects.filter(pk=waits.pk).update(priority=priority)
    tick = placement.Tick()
    assert placement.place_waiting(tick) == 0, "one node is free, and it needs two"
    assert growing.grow(Reservations()) == is_grown, "also where nothing is kept for it"
    assert bool(joining(job)) == is_grown


def test_what_is_kept_for_a_job_that_waits_is_not_taken(alice):
    nodes = rack(3)
    job, leases = train(alice)
    free = {node.pk for node in nodes} - {lease.node_id for lease in leases}
    assert growing.grow(Reservations(node_ids=frozenset(free))) == 0
    assert not joining(job)


def test_who_never_starts_costs_the_gang_nothing(alice):
    rack(3)
    job, _ = train(alice)
    grow()
    Lease.objects.joining().update(reserved_at=timezone.now() - timedelta(seconds=sweeps.START_SECONDS_MAX + 1))
    sweeps.sweep_leases()
    assert not joining(job)
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.generation) == ("running", 0)
    assert [lease.stop_reason for lease in members(job)] == ["", ""]
    gone = Lease.objects.filter(attempt=attempt, is_joining=True)
    assert {(lease.end_reason, lease.charge_units) for lease in gone} == {("never_started", 0)}
    assert [Node.objects.get(pk=lease.node_id).failures for lease in gone] == [1]
    rest(job)
    gone.update(replaced_at=timezone.now() - timedelta(days=1))
    assert grow() == 0, "it is not asked again"


def test_one_of_two_that_fails_ends_the_growth_by_its_own_fault_alone(alice):
    rack(4)
    job, _ = train(alice)
    grow()
    first, second = joining(job)
    be_ready([first, second])
    stage.finish(first, Reason.EXECUTOR_FAILED)
    assert not joining(job)
    assert [Node.objects.get(pk=each.node_id).failures for each in (first, second)] == [1, 0]
    second.refresh_from_db()
    assert (second.end_reason, second.state) == ("not_joined", "ended")
    going = report_of(second).model_copy(update={"state": AttemptState.PREPARING})
    (desired,) = desired_state(Node.objects.get(pk=second.node_id), [going])[1]
    assert (desired.action, desired.stop_reason) == ("stop", Reason.LEASE_EXPIRED)
    assert second.node_id not in placement.request_of(job).demand.avoid
    assert first.node_id in placement.request_of(job).demand.avoid


def test_a_node_that_says_it_runs_before_it_has_joined_is_not_paid(alice):
    rack(3)
    job, _ = train(alice)
    grow()
    (third,) = joining(job)
    stage.send_report(third, AttemptState.RUNNING)
    third.refresh_from_db()
    assert (third.state, third.running_at, third.charge_units) == ("ended", None, 0)
    assert (third.end_reason, Node.objects.get(pk=third.node_id).failures) == ("executor_failed", 1)
    assert stage.newest_attempt(job).generation == 0


def test_nothing_of_a_node_counts_before_it_has_joined(alice):
    rack(3)
    job, _ = train(alice)
    grow()
    (third,) = joining(job)
    be_ready([third])
    third.refresh_from_db()
    begin = ArtifactBegin(
        kind="checkpoint",
        step=20,
        billable_ms=1,
        node_rank=2,
        files=[ArtifactFile(path="weights", size=1, sha256="0" * 64)],
    )
    with pytest.raises(BadManifest, match="not joined"):
        uploads.begin(third, begin, fence=third.fence)
    first = members(job)[0]
    made = uploads.begin(first, begin.model_copy(update={"node_rank": 0}), fence=first.fence)
    assert Artifact.objects.get(pk=made.artifact_id).parts_expected == 2


def test_an_attempt_that_completes_meanwhile_ends_without_them(alice):
    rack(3)
    job, leases = train(alice)
    grow()
    (third,) = joining(job)
    be_ready([third])
    for lease in leases:
        stage.finish(lease)
    job.refresh_from_db()
    third.refresh_from_db()
    assert (job.state, third.state, third.end_reason) == ("completed", "ended", "not_joined")
    assert Node.objects.get(pk=third.node_id).successes == 0
    bill = make_bill(job)
    assert [(line.reason, line.charge_units) for line in bill.lines if line.reason == "not_joined"] == [
        ("not_joined", 0)
    ]
    assert bill.total_usd_micros + bill.released_usd_micros == bill.hold_usd_micros


def test_a_cancelled_job_waits_for_nobody_who_would_join(alice):
    rack(3)
    job, leases = train(alice)
    grow()
    lifecycle.cancel(job.pk, actor="alice")
    for lease in leases:
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert job.state == "cancelled"
    assert not joining(job)


def test_a_loss_meanwhile_ends_the_growth(alice):
    rack(4)
    job, leases = train(alice)
    grow()
    reports.lose(leases[1].pk, Reason.NODE_SILENT, "")
    wait_in_vain(job)
    first = Lease.objects.get(pk=leases[0].pk)
    assert first.stop_reason == Reason.GANG_BROKEN, "with one node left it cannot go on"
    stage.finish(first, Reason.GANG_BROKEN)
    assert not Lease.objects.live().filter(attempt__job=job).exists()


def test_a_checkpoint_that_does_not_come_is_not_waited_for_for_ever(alice):
    rack(3)
    job, leases = train(alice)
    grow()
    (third,) = joining(job)
    be_ready([third])
    for lease in leases:
        stage.see_running(lease, seconds=400)
    assert grow() == 0, "much would be done again: the next checkpoint is worth waiting for"
    assert joining(job)
    Lease.objects.filter(attempt__job=job, is_joining=False).update(
        running_at=timezone.now() - timedelta(hours=9)  # so long that it is not worth to do it again
    )
    Lease.objects.joining().update(reserved_at=timezone.now() - timedelta(seconds=growing.PATIENCE_SECONDS + 1))
    assert grow() == 1
    assert not joining(job)
    assert stage.newest_attempt(job).generation == 0


def test_who_is_not_ready_in_time_is_not_asked_again(alice):
    rack(3)
    job, _ = train(alice)
    grow()
    Lease.objects.joining().update(reserved_at=timezone.now() - timedelta(seconds=growing.JOIN_SECONDS_MAX + 1))
    assert grow() == 1
    (gone,) = Lease.objects.filter(attempt__job=job, is_joining=True)
    assert gone.end_reason == "not_joined"
    Lease.objects.filter(pk=gone.pk).update(replaced_at=timezone.now() - timedelta(days=1))
    assert grow() == 0


def test_a_growth_that_came_to_nothing_is_tried_again_later_and_later(alice):
    rack(3)
    job, _ = train(alice)
    attempt = stage.newest_attempt(job)
    for waits in (20, 40):  # minutes
        assert grow() == 1
        (third,) = joining(job)
        be_ready([third])
        joins.give_up(attempt)
        mine = Lease.objects.filter(pk=third.pk)
        mine.update(replaced_at=timezone.now() - timedelta(minutes=waits - 1))
        assert grow() == 0
        mine.update(replaced_at=timezone.now() - timedelta(minutes=waits + 1))


def test_who_joined_and_does_not_come_up_is_left_behind_at_once(alice):
    rack(3)
    job, leases = train(alice)
    grow()
    be_ready(joining(job))
    grow()
    for lease in leases:
        stage.see_running(lease, seconds=900)
        stage.bill(lease, ms=900_000)
    since = timezone.now() - timedelta(seconds=resizing.COME_UP_SECONDS + 1)
    Attempt.objects.filter(job=job).update(grown_at=since)
    sweeps.sweep_leases()
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.generation, attempt.resume_artifact.step) == ("running", 2, 10)
    assert [lease.node_rank for lease in members(job)] == [0, 1]
    event = Event.objects.filter(subject_kind="attempt", data__generation=2).get()
    assert (event.reason, event.data["shrunk_to"]) == ("never_started", 2)
    for lease in members(job):
        stage.send_report(lease, AttemptState.RUNNING, generation=2)
    sweeps.sweep_jobs()
    save(job, members(job), step=20, ms=905_000)
    sweeps.sweep_jobs()
    for lease in members(job):
        assert lease.paid_of(900_000) == pytest.approx(100_000 + generations.JOIN_PAID_MS, abs=3_000)
    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("running", 1)


def test_without_another_node_a_grown_gang_goes_on_with_the_rest(alice):
    rack(3)
    job, leases = grown(alice)
    save(job, leases, step=20, ms=110_000)
    before = sum(lease.cap_units for lease in leases)
    reports.lose(leases[1].pk, Reason.NODE_SILENT, "")
    assert stage.newest_attempt(job).broken_at is not None
    assert not any(lease.stop_reason for lease in members(job))
    wait_in_vain(job)
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.generation, attempt.resume_artifact.step) == ("running", 2, 20)
    first, last = members(job)
    assert [first.node_rank, last.node_rank] == [0, 2]
    told = assignment_of(last, known(last, generation=1))
    assert (told.gang.nodes, told.gang.node_rank) == (2, 1)
    lost = Lease.objects.get(pk=leases[1].pk)
    assert before - 10 <= first.cap_units + last.cap_units + lost.charge_units <= before
    begin = ArtifactBegin(
        kind="checkpoint",
        step=30,
        billable_ms=1,
        node_rank=1,
        generation=2,
        files=[ArtifactFile(path="weights", size=1, sha256="0" * 64)],
    )
    assert uploads.begin(last, begin, fence=last.fence)


def test_after_that_it_grows_again_into_the_place_that_is_free(alice):
    rack(3)
    job, leases = grown(alice)
    save(job, leases, step=20, ms=110_000)
    reports.lose(leases[1].pk, Reason.NODE_SILENT, "")
    wait_in_vain(job)
    rack(1)
    for lease in members(job):
        stage.send_report(lease, AttemptState.RUNNING, generation=2)
    save(job, members(job), step=30, ms=Lease.objects.get(pk=members(job)[0].pk).observed_ms)
    sweeps.sweep_jobs()
    rest(job)
    assert grow() == 1
    be_ready(joining(job))
    assert grow() == 1
    assert [lease.node_rank for lease in members(job)] == [0, 1, 2]
    told = [assignment_of(lease, known(lease, generation=2)).gang for lease in members(job)]
    assert [(place.nodes, place.node_rank) for place in told] == [(3, 0), (3, 1), (3, 2)]


def test_a_gang_does_not_shrink_below_its_fewest_nor_without_its_first(alice):
    rack(3)
    job, leases = grown(alice)
    save(job, leases, step=20, ms=110_000)
    reports.lose(leases[0].pk, Reason.NODE_SILENT, "")
    wait_in_vain(job)
    assert [lease.stop_reason for lease in members(job)][1:] == ["gang_broken", "gang_broken"]


def test_a_member_that_is_lost_in_a_growth_is_replaced_from_the_same_checkpoint(alice):
    rack(3)
    job, leases = train(alice)
    grow()
    be_ready(joining(job))
    grow()
    reports.lose(leases[1].pk, Reason.NODE_SILENT, "")
    attempt = stage.newest_attempt(job)
    assert attempt.broken_at is not None
    assert not any(lease.stop_reason for lease in members(job))


def test_what_growths_have_cost_counts_against_later_ones(alice):
    rack(3)
    job, _ = train(alice)
    Attempt.objects.filter(job=job).update(growth_usd_micros=10 * DOLLAR)
    assert grow() == 0


def test_an_agent_that_was_away_is_told_again(alice):
    rack(3)
    job, leases = train(alice)
    grow()
    be_ready(joining(job))
    version = desired_state(leases[0].node, [report_of(leases[0])])[0]
    grow()
    assert desired_state(leases[0].node, [report_of(leases[0])])[0] != version
    for _ in range(2):
        assert assignment_of(leases[0], known(leases[0])).generation == 1
    follow(members(job)[:1], generation=1)
    assert assignment_of(leases[0], known(leases[0], generation=1)) is None
