"""A training that prepares for long is billed, shown, and ended where it does not move."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs import sweeps
from jobs.models import Job, Lease, Stream
from jobs.running import reports, streams
from jobs.running.preparing import PREPARE_SECONDS_MAX, PREPARING_SECONDS_MAX
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage

pytestmark = pytest.mark.django_db(transaction=True)


def append(lease: Lease, **event: Any) -> None:
    """The lease's node ships an event."""
    lease.refresh_from_db()
    line = json.dumps({"event": "preparing", "at": 1.0, "what": "data"} | event).encode() + b"\n"
    streams.append(lease, Stream.EVENT, fence=lease.fence, offset=lease.event_bytes, data=line)


def move_preparing(job: Job, *, seconds: float) -> None:
    """As if all that was reported had come so long ago."""
    job.refresh_from_db()
    for name in ("since", "moved_at"):
        at = datetime.fromisoformat(job.progress["preparing"][name]) - timedelta(seconds=seconds)
        job.progress["preparing"][name] = at.isoformat()
    Job.objects.filter(pk=job.pk).update(progress=job.progress)


@pytest.fixture
def prepares(alice: Organisation, bob: Node) -> tuple[Job, Lease]:
    """A job that runs on Bob's node by its first `preparing` event, and has been billed for 100 s."""
    job, (lease,) = stage.running_job(alice)
    append(lease, seconds=60.0, done=1, total=30, unit="bytes")
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    return job, lease


def ended(job: Job, lease: Lease) -> tuple[str, str, int]:
    """The attempt's reason, the job's state, and whether the lease was charged."""
    job.refresh_from_db()
    lease.refresh_from_db()
    return lease.attempt.reason, job.state, lease.charge_usd_micros or 0


def test_the_job_shows_what_its_node_prepares(prepares: tuple[Job, Lease]) -> None:
    job, lease = prepares
    append(lease, seconds=90.0, done=2, total=30, unit="[red]", text="\u0000")
    job.refresh_from_db()
    shown = {name: job.progress["preparing"].get(name) for name in ("what", "seconds", "done", "total", "unit", "text")}
    assert shown == {"what": "data", "seconds": 90.0, "done": 2, "total": 30, "unit": None, "text": None}
    append(lease, event="started", steps_total=100)
    job.refresh_from_db()
    assert (job.progress["steps_total"], "preparing" in job.progress) == (100, False)


def test_what_moves_is_left_alone_and_what_stands_still_is_not_paid(prepares: tuple[Job, Lease], bob: Node) -> None:
    job, lease = prepares
    move_preparing(job, seconds=PREPARE_SECONDS_MAX - 5)
    assert sweeps.sweep_leases() == 0
    append(lease, seconds=90.0, done=1, total=30, unit="bytes")  # it counts seconds, and does nothing
    move_preparing(job, seconds=10)
    assert sweeps.sweep_leases() == 1
    lease.attempt.refresh_from_db()
    assert ended(job, lease) == ("never_started", "recovering", 0)
    bob.refresh_from_db()
    assert bob.failures == 1


def test_who_pretends_to_prepare_is_ended_after_a_day(
    prepares: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events move for as long as it likes; from the day's end on they do not count."""
    job, lease = prepares
    began = timezone.now()
    for seconds in (PREPARING_SECONDS_MAX - 60, PREPARING_SECONDS_MAX + 60, PREPARING_SECONDS_MAX + 2400):
        now = began + timedelta(seconds=seconds)
        monkeypatch.setattr(clock, "now", lambda now=now: now)
        append(lease, seconds=float(seconds), done=seconds, unit="bytes")
        Lease.objects.filter(pk=lease.pk).update(lease_until=now + timedelta(hours=1))
        assert sweeps.sweep_leases() == 0
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=600))
    assert sweeps.sweep_leases() == 1
    lease.attempt.refresh_from_db()
    assert ended(job, lease) == ("never_started", "recovering", 0)


def test_a_move_at_the_last_moment_counts(prepares: tuple[Job, Lease]) -> None:
    """The sweep looked before it came; the verb decides again under the job's lock."""
    job, lease = prepares
    move_preparing(job, seconds=PREPARE_SECONDS_MAX + 5)
    append(lease, seconds=90.0, done=2, total=30, unit="bytes")
    assert not reports.lose_still(lease.pk)
    lease.refresh_from_db()
    assert lease.reported_state == AttemptState.RUNNING


def test_a_training_that_started_is_no_longer_watched(prepares: tuple[Job, Lease]) -> None:
    job, lease = prepares
    move_preparing(job, seconds=PREPARE_SECONDS_MAX + 5)
    append(lease, event="started", steps_total=100)
    assert sweeps.sweep_leases() == 0


def test_a_customers_own_program_may_prepare_as_long_as_it_likes(alice: Organisation, bob: Node) -> None:
    job, (lease,) = stage.running_job(alice, **stage.OWN_COMMAND)
    append(lease, seconds=60.0)
    move_preparing(job, seconds=PREPARE_SECONDS_MAX + 5)
    assert sweeps.sweep_leases() == 0


@pytest.mark.parametrize(
    ("reason", "state", "is_paid"),
    [
        (Reason.BAD_INPUT, "failed", True),
        (Reason.OUT_OF_MEMORY, "failed", True),
        (Reason.INTERNAL, "recovering", False),
        (Reason.EXECUTOR_FAILED, "recovering", False),
        (Reason.DISK_FULL, "recovering", False),
    ],
)
def test_who_broke_what_was_prepared_pays_for_it(
    prepares: tuple[Job, Lease], reason: Reason, state: str, is_paid: bool
) -> None:
    job, lease = prepares
    lease.refresh_from_db()
    stage.finish(lease, reason, event_bytes=lease.event_bytes)
    lease.attempt.refresh_from_db()
    found = ended(job, lease)
    assert (found[0], found[1], found[2] > 0) == (reason.value, state, is_paid)


def test_a_customer_who_cancels_pays_for_what_was_prepared(prepares: tuple[Job, Lease]) -> None:
    job, lease = prepares
    Lease.objects.filter(pk=lease.pk).update(stop_reason=Reason.CANCELLED_BY_CUSTOMER.value)
    lease.refresh_from_db()
    stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER, event_bytes=lease.event_bytes)
    lease.attempt.refresh_from_db()
    assert ended(job, lease)[2] > 0


def test_of_a_gang_the_first_nodes_word_is_shown(alice: Organisation) -> None:
    owner = stage.organisation("bob")
    for name in ("one", "two"):
        stage.node(name, fabric="rack", provider=owner)
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 2, "kind": "any", "nodes": 2}))
    leases = stage.place(job)
    assert len(leases) == 2
    for lease in leases:
        stage.send_report(lease, AttemptState.PREPARING)
    stage.send_report(leases[0], AttemptState.RUNNING)
    append(leases[0], seconds=60.0)
    append(leases[1], seconds=700.0)
    job.refresh_from_db()
    assert (job.state, job.progress["preparing"]["seconds"]) == ("placed", 60.0)
    stage.send_report(leases[1], AttemptState.RUNNING)
    job.refresh_from_db()
    assert job.state == "running"
    move_preparing(job, seconds=PREPARE_SECONDS_MAX + 5)
    assert sweeps.sweep_leases() == 1, "the first node's lease ends, and with it the others'"
    for lease in leases:
        lease.refresh_from_db()
    assert [lease.reported_reason for lease in leases] == ["never_started", ""]
    assert [lease.stop_reason for lease in leases] == ["", "gang_broken"]
    stage.finish(leases[1], Reason.GANG_BROKEN)
    assert stage.newest_attempt(job).reason == "never_started"
