"""Who wins when two come at once: real connections, each race decided by the database."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.utils import timezone

from billing.models import Hold, Settlement
from jobs import lifecycle
from jobs.errors import QuoteUsed
from jobs.models import Job, Lease, LeaseDevice
from jobs.placing import placement
from jobs.running import reports
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, LeaseReport, Reason
from tests import stage
from tests.integration.jobs.placements import placement_for
from tests.integration.racing import race
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice():
    return stage.organisation("alice", usd_micros=20 * DOLLAR)


def test_of_two_placements_that_race_for_the_last_devices_one_wins_and_one_waits(alice):
    stage.node("the-last")
    first, second = stage.submit(alice), stage.submit(alice)
    slots = [(job.id, placement_for(job)) for job in (first, second)]
    assert slots[0][1].slots == slots[1][1].slots, "both want the same devices"
    won = race(*[lambda job_id=job_id, slot=slot: placement.place_job(job_id, slot) for job_id, slot in slots])
    assert sorted(won) == [False, True]
    assert sorted(stage.states_of([first, second])) == ["placed", "queued"]
    assert LeaseDevice.objects.filter(is_live=True).count() == 2
    assert Hold.objects.filter(state="open").count() == 1, "who lost holds no money"


def test_eight_placements_that_race_for_two_nodes_fill_each_once(alice):
    for name in ("one", "two"):
        stage.node(name)
    waiting = [stage.submit(alice) for _ in range(8)]
    slots = [(job.id, placement_for(job)) for job in waiting]
    race(*[lambda job_id=job_id, slot=slot: placement.place_job(job_id, slot) for job_id, slot in slots])
    placement.place_batch()  # the losers come back with fresh eyes
    assert Lease.objects.live().values("node").distinct().count() == 2
    assert Lease.objects.live().count() == 2


def test_who_submits_while_others_are_placed_does_not_wait_for_the_next_tick(alice, monkeypatch):
    stage.node("one")
    stage.node("two")
    jobs = [stage.submit(alice)]
    place_batch = placement.place_batch

    def late_submit(tick: placement.Tick) -> int:
        placed = place_batch(tick)
        if len(jobs) == 1:
            jobs.append(stage.submit(alice))
        return placed

    monkeypatch.setattr(placement, "place_batch", late_submit)
    assert placement.place_waiting() == 2
    assert stage.states_of(jobs) == ["placed", "placed"]


def test_of_two_submits_with_one_quote_one_makes_a_job(alice):
    stage.node()
    quote_id = stage.quote(alice)
    submits = [
        lambda: lifecycle.submit(organisation=alice, user=None, spec=stage.spec_of(), quote_id=quote_id)
        for _ in range(2)
    ]
    results = race(*submits)
    assert {type(result) for result in results} == {Job, QuoteUsed}
    assert Job.objects.count() == 1


def test_an_end_that_two_syncs_report_at_once_settles_once(alice):
    stage.node()
    job = stage.submit(alice)
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=60_000)
    report = LeaseReport(
        lease_id=lease.id,
        fence=lease.fence,
        attempt_id=lease.attempt_id,
        state=AttemptState.SUCCEEDED,
        reason=Reason.COMPLETED,
        receipt_seq=1,
    )
    node, boot = Node.objects.get(pk=lease.node_id), uuid4()
    syncs = [lambda: reports.apply_reports(node, [report], boot_id=boot, received_at=timezone.now()) for _ in range(4)]
    assert race(*syncs) == [None] * 4
    job.refresh_from_db()
    assert job.state == "completed"
    assert Settlement.objects.filter(job_id=job.id).count() == 1
    assert Event.objects.filter(subject_id=job.id, to_state="completed").count() == 1


def test_cancel_and_completion_at_once_end_the_job_once(alice):
    stage.node()
    job = stage.submit(alice)
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    race(lambda: stage.finish(lease), lambda: lifecycle.cancel(job.id, actor="alice"))
    job.refresh_from_db()
    assert job.state == "completed"  # cancelling is a request only; the reported end stays
    assert Settlement.objects.filter(job_id=job.id).count() == 1


def test_a_node_declared_lost_while_it_reports_success_ends_the_attempt_once(alice):
    stage.node()
    job = stage.submit(alice)
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    race(lambda: stage.finish(lease), lambda: reports.lose(lease.id, Reason.NODE_SILENT, "gone"))
    attempt = stage.newest_attempt(job)
    assert attempt.state in {"succeeded", "lost"}
    ends = Event.objects.filter(subject_id=attempt.id, to_state__in=["succeeded", "lost"])
    assert ends.count() == 1
