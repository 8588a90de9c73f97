"""Where a replica goes, and when it has to wait."""

from __future__ import annotations

from django.utils import timezone

from jobs.serving import endpoints, placing
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.serving.conftest import bring_up, deploy, gateway_says, launch, leases_of, tick


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


def test_a_start_that_broke_by_the_customers_doing_is_tried_on_another_node(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_says()
    tick()
    (first,) = leases_of(endpoint)
    assert first.node.name == "bobs-node"
    stage.finish(first, Reason.BAD_CONFIG)
    gateway_says()
    tick()
    assert [lease.node.name for lease in leases_of(endpoint)] == ["carols-node"], "one agent's word is not enough"


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


def test_a_node_that_left_its_memory_out_is_taken_to_be_as_slow_as_the_slowest(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    bob.offers.update(price_usd_micros_per_device_hour=4_000_000)
    Device.objects.filter(node=bob).update(memory_bytes_per_second=0)
    Device.objects.filter(node=carol).update(memory_bytes_per_second=1e9)
    _, endpoint = launch(alice)
    gateway_says()
    tick()
    assert [lease.node.name for lease in leases_of(endpoint)] == ["carols-node"]


def test_a_version_is_read_once_and_is_its_own(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    first = endpoint.versions.get()
    assert endpoints.spec_of(first) is endpoints.spec_of(endpoint.versions.get())
    assert endpoints.spec_of(first) == from_wire(first.spec)
