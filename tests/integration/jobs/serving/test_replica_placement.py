"""Where a replica goes, and when it has to wait."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.endpoints import versions
from jobs.serving import replica_placement
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.serving.conftest import deploy, gateway_reports, launch, leases_of, tick, up
from tests.stage import DOLLAR


def test_short_lives_of_a_bad_version_do_not_hold_up_a_good_ones_replacement(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint, (old,) = up(alice)
    new = deploy(endpoint, limits={"max_tokens": 10})
    for _ in range(2):
        tick()
        bad = next(lease for lease in leases_of(endpoint) if lease.attempt.replica.version_id == new.pk)
        stage.finish(bad, Reason.EXIT_NONZERO)
        gateway_reports([old])
    tick()
    assert replica_placement.paused_until(new) > timezone.now()
    assert [lease.pk for lease in leases_of(endpoint)] == [old.pk], "another of the bad one would be started later"
    stage.finish(old, Reason.EXIT_NONZERO)
    tick()
    assert [lease.attempt.replica.version.number for lease in leases_of(endpoint)] == [1]


def test_a_start_that_broke_by_the_customers_doing_is_tried_on_another_node(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (first,) = leases_of(endpoint)
    assert first.node.name == "bobs-node"
    stage.finish(first, Reason.BAD_CONFIG)
    gateway_reports()
    tick()
    assert [lease.node.name for lease in leases_of(endpoint)] == ["carols-node"], "one agent's word is not enough"


@pytest.mark.parametrize(
    ("bobs_dollars", "bobs_memory", "carols_memory"),
    [
        pytest.param(2, 1e9, 2e9, id="at one price the faster memory wins"),
        pytest.param(4, 0, 1e9, id="memory that was left out counts as the slowest"),
    ],
)
def test_a_token_is_as_dear_as_reading_the_weights_is_slow(
    alice: Organisation, bob: Node, carol: Node, bobs_dollars: int, bobs_memory: float, carols_memory: float
) -> None:
    bob.offers.update(price_usd_micros_per_device_hour=bobs_dollars * DOLLAR)
    for node, memory in ((bob, bobs_memory), (carol, carols_memory)):
        Device.objects.filter(node=node).update(memory_bytes_per_second=memory)
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    assert [lease.node.name for lease in leases_of(endpoint)] == ["carols-node"]


def test_a_version_is_read_once_and_is_its_own(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    first = endpoint.versions.get()
    assert versions.spec_of(first) is versions.spec_of(endpoint.versions.get())
    assert versions.spec_of(first) == from_wire(first.spec)
