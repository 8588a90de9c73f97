"""Declared hours, from the node's signature to the matcher and to the sweep."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import sweeps
from jobs.matching import fleet
from jobs.models import Lease
from marketplace.nodes.errors import BadFacts
from marketplace.nodes.models import Node
from marketplace.nodes.offering import schedule
from provider_agent.protocol import AttemptState, Away, Schedule
from tests import stage
from tests.integration.jobs.api.api_clients import client_of

pytestmark = pytest.mark.django_db(transaction=True)


def away(*, begins: float, ends: float) -> Schedule:
    """A window so many hours from now."""
    now = timezone.now()
    return Schedule(away=[Away(begins_at=now + timedelta(hours=begins), ends_at=now + timedelta(hours=ends))])


def test_job_that_could_outlast_the_window_is_placed_when_the_window_is_gone(alice, bob) -> None:
    schedule.declare(bob, away(begins=1, ends=2))
    job = stage.submit(alice, stage.spec_of(budget={"max_total": "1.99"}, resources={"gpus": 2, "kind": "any"}))
    (row,) = fleet.take_snapshot().open_seconds
    assert 3590 < row <= 3600
    schedule.declare(bob, away(begins=0.01, ends=2))
    assert stage.place(job) == []
    assert "close before the job could be done" in job.waiting_for
    schedule.declare(bob, Schedule())
    assert len(stage.place(job)) == 1


def test_closed_node_takes_nothing_and_what_still_runs_leaves_it(alice, bob, lease) -> None:
    assert sweeps.sweep_jobs() == 0
    schedule.declare(bob, away(begins=-1, ends=1))
    assert [fleet.take_snapshot().states] == [("closed",)]
    assert sweeps.sweep_jobs() == 1
    assert Lease.objects.get(pk=lease.pk).stop_reason == "node_drained"
    assert sweeps.sweep_jobs() == 0


def test_windows_that_are_over_are_forgotten_and_unknown_zones_refused(bob) -> None:
    assert schedule.declare(bob, away(begins=-2, ends=-1)).away == []
    assert Node.objects.get(pk=bob.pk).schedule == {}
    with pytest.raises(BadFacts, match="Mars/Olympus"):
        schedule.declare(bob, Schedule(timezone="Mars/Olympus"))


def test_provider_declares_through_the_api_and_a_stranger_does_not(alice, bob) -> None:
    path = f"/api/v1/provider/nodes/{bob.pk}/schedule"
    client = client_of(bob.provider.organisation)
    body = {"timezone": "Europe/Berlin", "hours": [{"day": 0, "begins": 60, "ends": 120}], "away": []}
    assert client.put(path, body, format="json").json() == body
    assert client.get(path).json() == body
    wrong = {**body, "hours": [{"day": 0, "begins": 120, "ends": 60}]}
    assert client.put(path, wrong, format="json").status_code == 400
    assert client_of(alice).put(path, body, format="json").status_code in {403, 404}
    assert schedule.of(Node.objects.get(pk=bob.pk)).timezone == "Europe/Berlin"


def test_lease_that_goes_on_elsewhere_resumes_where_nobody_closes(alice, bob, lease) -> None:
    schedule.declare(bob, away(begins=-1, ends=1))
    sweeps.sweep_jobs()
    other = stage.node("charlies-node")
    stage.send_report(lease, AttemptState.CANCELLED, reason="node_drained")
    (second,) = stage.place(lease.attempt.job)
    assert second.node_id == other.pk
