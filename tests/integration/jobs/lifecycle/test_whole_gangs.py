"""A gang is placed whole, fails whole, and only the node that broke it is blamed."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.placing import placement
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_gang_is_placed_whole_on_one_fabric_and_fails_whole(alice):
    bob = stage.organisation("bob")
    nodes = [stage.node(f"gang-{i}", fabric="rack", provider=bob) for i in range(2)]
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}))
    first, second = stage.place(job)
    assert {first.node, second.node} == set(nodes)
    stage.send_report(first, AttemptState.RUNNING)
    job.refresh_from_db()
    assert job.state == "placed"  # it runs when all of it runs
    stage.send_report(second, AttemptState.RUNNING)
    job.refresh_from_db()
    assert job.state == "running"
    stage.finish(first, Reason.DEVICE_FAILED, message="Xid 79")
    second.refresh_from_db()
    assert second.stop_reason == Reason.GANG_BROKEN
    stage.finish(second, Reason.GANG_BROKEN)
    job.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, attempt.reason, attempt.message) == ("recovering", "device_failed", "Xid 79")


def test_of_a_gang_only_the_node_that_broke_it_is_blamed(alice):
    bob = stage.organisation("bob")
    for name in ("guilty", "innocent"):
        stage.node(name, fabric="rack", provider=bob)
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}))
    guilty, innocent = stage.place(job)
    stage.finish(guilty, Reason.DEVICE_FAILED)
    stage.finish(innocent, Reason.GANG_BROKEN)
    assert [Node.objects.get(pk=each.node_id).failures for each in (guilty, innocent)] == [1, 0]
    assert placement.request_of(Job.objects.get(pk=job.id)).demand.avoid == {guilty.node_id}
