"""The snapshot gives the matcher what the database has, in five queries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.matching import fleet
from jobs.matching.exclusion_reasons import Why
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Lease
from jobs.placing import placement
from jobs.quoting import quotes
from jobs.running.assignments import make_assignment
from marketplace.accounts.models import Organisation
from marketplace.nodes.inventory import identity
from marketplace.nodes.models import Device, FabricLink, Node, Offer
from provider_agent.protocol import Assignment
from tests import stage
from tests.row_states import put_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def row_of(snapshot: FleetSnapshot, node: Node) -> int:
    return snapshot.node_ids.index(node.id)


def test_a_node_comes_with_its_offer_its_devices_and_its_measured_speed(bob: Node) -> None:
    snapshot = fleet.take_snapshot()
    ((group,),) = snapshot.groups
    assert (group.kind, group.model, group.memory_mib, group.total) == ("gpu", "NVIDIA H100", 24_000, 2)
    assert group.flops_per_second == {"float32": 1e13, "bfloat16": 1e13}
    assert group.free == tuple(Device.objects.filter(node=bob).order_by("index").values_list("id", flat=True))
    assert (snapshot.prices_usd_micros, snapshot.seconds_min) == ((DOLLAR,), (60,))


def test_a_node_comes_with_what_its_agent_says_of_isolation_network_and_lent_folders(bob: Node) -> None:
    assert [fleet.take_snapshot().isolations, fleet.take_snapshot().lent] == [("runc",), (frozenset(),)]
    bob.facts = {**bob.facts, "isolation": "gvisor", "egress": True, "lent": ["corpus", "images"]}
    bob.save()
    snapshot = fleet.take_snapshot()
    assert (snapshot.isolations, snapshot.egresses) == (("gvisor",), (True,))
    assert snapshot.lent == (frozenset({"corpus", "images"}),)


def test_shared_memory_is_shared_with_devices_that_are_not_rented_now(alice: Organisation, bob: Node) -> None:
    assert codes_of(alice, shm="1MiB") == ["shm"]
    bob.facts = {**bob.facts, "shm_mib": 4096}
    bob.save()
    assert codes_of(alice, shm="2GiB") == []
    Device.objects.filter(node=bob, index=1).update(is_healthy=False)
    assert codes_of(alice, shm="2GiB") == []
    assert codes_of(alice, shm="2049MiB") == ["shm"]
    Device.objects.filter(node=bob, index=1).update(fault=identity.GONE)
    assert codes_of(alice, shm="4096MiB") == [], "a card that is not in the machine has no share"


def test_cores_memory_and_disk_come_from_what_the_agent_reports(alice: Organisation, bob: Node) -> None:
    Node.objects.filter(pk=bob.pk).update(
        cpu_count=16, memory_mib=18 * 1024, facts={**bob.facts, "disk_free_mib": 6144}
    )
    assert codes_of(alice, cpus=8, ram="8GiB", disk="2GiB") == []  # for one of two devices; 2 GiB are kept back
    assert codes_of(alice, cpus=9) == ["cpus"]
    assert codes_of(alice, ram="9GiB") == ["ram"]
    assert codes_of(alice, disk="3GiB") == ["disk"]


def test_a_gpu_counts_for_what_its_model_has_whatever_its_agent_reports(alice: Organisation, bob: Node) -> None:
    assert codes_of(alice, cuda="12.4") == ["cuda"]
    Device.objects.filter(node=bob).update(details={"cuda": "12.4", "compute_capability": "12.0"})
    assert codes_of(alice, cuda="12.4", compute_capability="9.0") == []
    assert codes_of(alice, compute_capability="10.0") == ["compute_capability"]
    Device.objects.filter(node=bob, index=0).update(details={"cuda": "12.4", "compute_capability": "8.0"})
    assert codes_of(alice, compute_capability="9.0") == ["compute_capability"]


def test_a_plain_process_isolates_nothing_whatever_its_agent_reports(bob: Node) -> None:
    bob.executor, bob.facts = "process", {**bob.facts, "isolation": "gvisor"}
    bob.save()
    assert fleet.take_snapshot().isolations == ("none",)


def plain_process(bob: Node, *, allows_strangers: bool = False) -> Node:
    """Bob's node as it would be without containers."""
    bob.executor, bob.allows_strangers = "process", allows_strangers
    bob.save()
    return bob


def codes_of(organisation: Organisation, **resources: str | int) -> list[str]:
    """Why a job of it fits nowhere; empty where it fits."""
    view = quotes.make_quote(stage.spec_of(resources={"gpus": 1, "kind": "any", **resources}), organisation)
    return [exclusion.code for exclusion in view.plan.exclusions]


def test_a_strangers_job_runs_as_a_plain_process_only_where_both_sides_agree(alice: Organisation, bob: Node) -> None:
    plain_process(bob)
    assert codes_of(alice) == ["isolation"]
    assert codes_of(alice, isolation="none") == ["own_jobs"], "the provider did not agree"
    plain_process(bob, allows_strangers=True)
    assert codes_of(alice) == ["isolation"], "the customer did not agree"
    assert codes_of(alice, isolation="none") == []
    (lease,) = stage.place(stage.submit(alice, stage.spec_of(resources={"gpus": 1, "isolation": "none"})))
    assert lease.node_id == bob.id


def test_a_providers_own_job_runs_as_a_plain_process_where_it_asks_for_that(bob: Node) -> None:
    owner = plain_process(bob).provider.organisation
    assert codes_of(owner) == ["isolation"]
    assert codes_of(owner, isolation="none") == []


@pytest.mark.parametrize("isolation", ["none", "container"])
def test_a_node_that_changed_since_the_snapshot_is_given_no_job(alice, bob: Node, monkeypatch, isolation: str) -> None:
    if isolation == "none":
        plain_process(bob, allows_strangers=True)
    spec = stage.spec_of(resources={"gpus": 1, "isolation": isolation})
    job, before = stage.submit(alice, spec), fleet.take_snapshot()
    monkeypatch.setattr(fleet, "take_snapshot", lambda: before)
    plain_process(bob)
    assert stage.place(job) == []


def test_a_job_that_names_a_lent_folder_is_placed_only_where_it_is_lent(alice: Organisation, bob: Node) -> None:
    spec = stage.spec_of(resources={"gpus": 1, "kind": "any"}, lent=["corpus"])
    refused = quotes.make_quote(spec, alice)
    assert refused.quote_id is None
    assert [exclusion.code for exclusion in refused.plan.exclusions] == ["lent"]
    bob.facts = {**bob.facts, "lent": ["corpus"]}
    bob.save()
    (lease,) = stage.place(stage.submit(alice, spec))
    assignment = Assignment.model_validate_json(make_assignment(lease).payload)
    assert (assignment.lent, assignment.network) == (["corpus"], "none")


def test_leased_devices_are_not_free_and_free_again_when_the_lease_ends(alice: Organisation, bob: Node) -> None:
    (lease,) = stage.place(stage.submit(alice, stage.spec_of(resources={"gpus": 1, "kind": "any"})))
    taken = set(lease.devices.values_list("id", flat=True))
    assert not taken & set(fleet.take_snapshot().groups[0][0].free)
    assert len(fleet.take_snapshot().groups[0][0].free) == 1
    stage.finish(lease)
    assert len(fleet.take_snapshot().groups[0][0].free) == 2


def test_a_group_is_as_fast_as_its_slowest_device(bob: Node) -> None:
    Device.objects.filter(node=bob, index=1).update(flops_per_second={"float32": 5e12})
    assert fleet.take_snapshot().groups[0][0].flops_per_second == {"float32": 5e12}


def test_an_unhealthy_device_is_not_there(bob: Node) -> None:
    Device.objects.filter(node=bob, index=1).update(is_healthy=False)
    assert fleet.take_snapshot().groups[0][0].total == 1


def test_a_node_that_missed_two_beats_gets_nothing_new(bob: Node) -> None:
    Node.objects.update(last_seen_at=timezone.now() - fleet.SUSPECT_AFTER - timedelta(seconds=1))
    assert fleet.take_snapshot().closed == {Why.SILENT: 1}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "draining"}, Why.DRAINING),
        ({"state": "offline"}, Why.OFFLINE),
        ({"state": "quarantined"}, Why.QUARANTINED),
        ({"suspended_at": "2026-01-01T00:00:00Z"}, Why.SUSPENDED),
        ({"measured_at": None}, Why.UNMEASURED),
    ],
)
def test_a_node_that_takes_nothing_says_why(bob: Node, change: dict[str, str | None], why: Why) -> None:
    changed = Node.objects.filter(pk=bob.pk)
    if state := change.get("state"):
        put_in_state(changed, state)
    else:
        changed.update(**change)
    assert fleet.take_snapshot().closed == {why: 1}


def test_a_closed_or_expired_offer_is_none(bob: Node) -> None:
    Offer.objects.update(available_until=timezone.now() - timedelta(seconds=1))
    assert fleet.take_snapshot().closed == {Why.NO_OFFER: 1}
    Offer.objects.update(available_until=None, is_open=False)
    assert fleet.take_snapshot().closed == {Why.NO_OFFER: 1}


def test_an_offer_that_ends_soon_takes_no_longer_job(bob: Node) -> None:
    Offer.objects.update(available_until=timezone.now() + timedelta(seconds=100))
    assert 90 < fleet.take_snapshot().seconds_max[0] <= 100


def test_a_retired_node_is_not_even_counted(bob: Node) -> None:
    put_in_state(Node.objects.all(), "retired")
    assert len(fleet.take_snapshot()) == 0


@pytest.fixture
def large_fleet(bob: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the one node were a fleet that is not read each time."""
    monkeypatch.setattr(fleet, "NODES_SMALL", 0)
    fleet.forget_supply()
    yield
    fleet.forget_supply()


@pytest.mark.usefixtures("large_fleet")
def test_a_large_fleet_is_read_once_and_its_leases_each_time(alice: Organisation, bob: Node) -> None:
    job = stage.submit(alice, stage.spec_of(resources={"gpus": 1, "kind": "any"}))
    fleet.take_snapshot()
    (lease,) = stage.place(job)
    with CaptureQueriesContext(connection) as queries:
        snapshot = fleet.take_snapshot()
    assert len(queries) == 1, [query["sql"] for query in queries]
    assert len(snapshot.groups[0][0].free) == 1
    stage.finish(lease)
    assert len(fleet.take_snapshot().groups[0][0].free) == 2


@pytest.mark.usefixtures("large_fleet")
def test_a_slot_of_an_old_supply_is_refused_and_the_next_look_is_fresh(alice: Organisation, bob: Node) -> None:
    job = stage.submit(alice)
    Offer.objects.update(is_open=False)
    assert fleet.take_snapshot().closed == {}, "of before it was closed"
    assert placement.place_batch() == 0
    assert not Lease.objects.exists()
    assert fleet.take_snapshot().closed == {Why.NO_OFFER: 1}
    job.refresh_from_db()
    assert job.state == "queued"


def test_six_queries_whatever_the_number_of_nodes(bob: Node) -> None:
    for number in range(5):
        stage.node(f"node-{number}", fabric="rack")
    with CaptureQueriesContext(connection) as queries:
        snapshot = fleet.take_snapshot()
    assert len(snapshot) == 6
    assert len([query for query in queries.captured_queries if query["sql"].startswith("SELECT")]) == 6
    assert snapshot.fabrics[row_of(snapshot, bob)] == ""


def test_nodes_that_measured_their_links_are_a_group_and_a_label_alone_is_none(bob: Node) -> None:
    owner = stage.organisation("carol")
    first, second = (stage.node(f"rack-{n}", fabric="rack", provider=owner) for n in range(2))
    lonely = stage.node("lonely", fabric="rack")  # the same label, another provider
    snapshot = fleet.take_snapshot()
    groups = [snapshot.fabrics[row_of(snapshot, each)] for each in (first, second, lonely, bob)]
    assert groups[0] == groups[1] != ""
    assert groups[2:] == ["", ""]
    labels = [snapshot.labels[row_of(snapshot, each)] for each in (first, second, lonely)]
    assert labels[0] == labels[1] != labels[2]


def test_a_link_that_failed_is_too_old_or_leads_to_an_absent_node_makes_no_group(bob: Node) -> None:
    owner = stage.organisation("carol")
    first, second = (stage.node(f"rack-{n}", fabric="rack", provider=owner) for n in range(2))
    stage.link(first, second, is_reachable=False)
    snapshot = fleet.take_snapshot()
    assert set(snapshot.fabrics) == {""}
    assert snapshot.have_failed_links[row_of(snapshot, first)]
    assert not snapshot.have_failed_links[row_of(snapshot, bob)]
    link = stage.link(first, second)
    assert len(set(fleet.take_snapshot().fabrics)) == 2
    put_in_state(Node.objects.filter(pk=second.pk), "offline")
    assert set(fleet.take_snapshot().fabrics) == {""}
    put_in_state(Node.objects.filter(pk=second.pk), "online")
    FabricLink.objects.filter(pk=link.pk).update(measured_at=timezone.now() - timedelta(days=8))
    assert set(fleet.take_snapshot().fabrics) == {""}


def test_a_gang_waits_for_links_says_so_and_is_quoted_once_they_are_measured(alice: Organisation) -> None:
    owner = stage.organisation("carol")
    first, second = (stage.node(f"rack-{n}", fabric="rack", provider=owner) for n in range(2))
    spec = stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"})
    FabricLink.objects.all().delete()
    waits = quotes.make_quote(spec, alice)
    assert waits.quote_id is None
    assert [(each.code, each.nodes) for each in waits.plan.exclusions] == [("unprobed", 2)]
    stage.link(first, second, is_reachable=False)
    refused = quotes.make_quote(spec, alice)
    assert [(each.code, each.nodes) for each in refused.plan.exclusions] == [("link", 2)]
    assert "do not reach each other" in refused.plan.exclusions[0].message
    stage.link(first, second)
    assert len(stage.place(stage.submit(alice, spec))) == 2
