"""Where a replica goes, and what is kept for those who came first."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from jobs.models import Endpoint, Job
from jobs.serving import endpoints, placing
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.serving.conftest import bring_up, deploy, gateway_says, launch, leases_of, tick


def waits(alice: Organisation, name: str) -> Job:
    """A job that wants both devices of a node, and nobody has looked at it yet."""
    spec = stage.spec_of(name=name, resources={"gpus": 2, "kind": "any"})
    job = stage.submit(alice, spec)
    Job.objects.filter(pk=job.pk).update(queued_at=timezone.now() - timedelta(seconds=5))
    return job


def is_busy(endpoint: Endpoint) -> None:
    """So much that every replica is wanted that it may have."""
    gateway_says(leases_of(endpoint), endpoint=endpoint, in_flight=30, queued=30, queue_seconds_max=9.0, arrived=60)


def test_growth_leaves_devices_to_a_job_that_waited_before_and_the_first_replica_does_not(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice, replicas={"min": 1, "max": 4}, scale={"in_flight": 4})
    gateway_says()
    Job.objects.filter(pk=endpoint.job_id).update(queued_at=timezone.now() - timedelta(seconds=60))
    first = waits(alice, "first")
    tick()
    assert [lease.node.name for lease in leases_of(endpoint)] == ["bobs-node"], "its first stood before in the queue"
    bring_up(endpoint)
    is_busy(endpoint)
    tick()
    assert {lease.node.name for lease in leases_of(endpoint)} == {"bobs-node"}, "carol's two are the waiting job's"
    assert {lease.node.name for lease in stage.place(first)} == {"carols-node"}


def test_growth_waits_for_a_job_that_waits_for_the_same_nodes_and_says_so(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice, replicas={"min": 1, "max": 4}, scale={"in_flight": 4})
    gateway_says()
    tick()
    bring_up(endpoint)
    first, second = waits(alice, "first"), waits(alice, "second")
    assert stage.place(first) and not stage.place(second)
    is_busy(endpoint)
    tick()
    assert len(leases_of(endpoint)) == 1
    endpoint.job.refresh_from_db()
    assert "2 kept for an older job that waits for them" in endpoint.job.waiting_for
    Job.objects.filter(pk=second.pk).update(cancel_requested_at=timezone.now())
    is_busy(endpoint)
    tick()
    assert len(leases_of(endpoint)) == 2


def test_short_lives_of_a_bad_version_do_not_hold_up_a_good_ones_replacement(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_says()
    tick()
    (old,) = bring_up(endpoint)
    new = deploy(endpoint, limits={"max_tokens": 10})
    for _ in range(2):
        tick()
        bad = next(lease for lease in leases_of(endpoint) if lease.attempt.replica.version_id == new.pk)
        stage.finish(bad, Reason.EXIT_NONZERO)
        gateway_says([old])
    tick()
    assert placing.paused_until(new) > timezone.now()
    assert [lease.pk for lease in leases_of(endpoint)] == [old.pk], "another of the bad one would be started later"
    stage.finish(old, Reason.EXIT_NONZERO)
    tick()
    assert [lease.attempt.replica.version.number for lease in leases_of(endpoint)] == [1]


def test_of_two_nodes_at_one_price_a_replica_takes_the_one_with_the_faster_memory(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    bob.offers.update(price_usd_micros_per_device_hour=2_000_000)
    Device.objects.filter(node=bob).update(memory_bytes_per_second=1e9)
    Device.objects.filter(node=carol).update(memory_bytes_per_second=2e9)
    _, endpoint = launch(alice)
    gateway_says()
    tick()
    assert [lease.node.name for lease in leases_of(endpoint)] == ["carols-node"]


def test_a_version_is_read_once_and_is_its_own(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    first = endpoint.versions.get()
    assert endpoints.spec_of(first) is endpoints.spec_of(endpoint.versions.get())
    assert endpoints.spec_of(first) == from_wire(first.spec)
