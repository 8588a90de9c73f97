"""The tick on real rows: an endpoint grows with its load, sleeps, wakes, replaces what fails, takes new versions."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.endpoints import minutes, versions
from jobs.endpoints.errors import DeployMismatch, NothingToRollBack
from jobs.endpoints.publish import table_now
from jobs.endpoints.views import list_endpoints
from jobs.models import Endpoint, EndpointVersion, Lease, Replica
from jobs.serving import observe, reconcile
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.serving.conftest import (
    bring_up,
    deploy,
    gateway_reports,
    launch,
    leases_of,
    serve_spec,
    states,
    tick,
    up,
)


def shares(endpoint: Endpoint) -> dict[int, tuple[str, int]]:
    """By version: its state and its share."""
    return {each.number: (each.state, each.share) for each in endpoint.versions.all()}


def drained(endpoint: Endpoint) -> None:
    """Every draining replica has nothing left, and has stopped."""
    Replica.objects.filter(state="draining").update(draining_at=timezone.now() - timedelta(seconds=60))
    reconcile.stop_drained()
    for lease in Lease.objects.live().filter(attempt__replica__endpoint=endpoint).exclude(stop_reason=""):
        stage.finish(Lease.objects.select_related("node", "attempt").get(pk=lease.pk), Reason.REPLICA_RETIRED)


def test_more_requests_than_one_replica_should_have_bring_another(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint = launch(alice, replicas={"min": 1, "max": 3}, scale={"in_flight": 4})
    gateway_reports()
    tick()
    leases = bring_up(endpoint)
    gateway_reports(leases, endpoint=endpoint, in_flight=4, queued=4, queue_seconds_max=5.0, arrived=8)
    tick()
    assert len(leases_of(endpoint)) >= 2
    assert {lease.node.name for lease in leases_of(endpoint)[:2]} == {"bobs-node", "carols-node"}
    endpoint.refresh_from_db()
    assert endpoint.desired >= 2 and endpoint.desired_why


def test_an_endpoint_that_nobody_asks_goes_to_sleep_and_wakes_for_the_first_who_does(
    alice: Organisation, bob: Node
) -> None:
    _, endpoint = launch(alice, replicas={"min": 0, "max": 2}, scale={"idle": "1m"})
    gateway_reports(endpoint=endpoint, arrived=1, queued=1, is_wanted=True)
    tick()
    leases = bring_up(endpoint)
    assert states(endpoint) == ["ready"]
    Endpoint.objects.update(wanted_at=timezone.now() - timedelta(hours=1))
    gateway_reports(leases)
    tick()
    assert states(endpoint) == ["draining"]
    drained(endpoint)
    tick()
    assert leases_of(endpoint) == []
    endpoint.refresh_from_db()
    assert endpoint.desired == 0 and endpoint.job.state == "running"
    gateway_reports(endpoint=endpoint, arrived=1, queued=1, is_wanted=True)
    tick()
    assert len(leases_of(endpoint)) == 1


def test_an_endpoint_that_slept_before_it_ever_ran_is_asleep_and_wakes(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice, replicas={"min": 0, "max": 1}, scale={"idle": "1m"})

    def shown() -> str:
        endpoint.refresh_from_db()
        return list_endpoints([endpoint])[0].state

    assert shown() == "starting", "it is awake from its launch on"
    gateway_reports()
    tick()
    assert (states(endpoint), shown()) == (["starting"], "starting")
    Endpoint.objects.update(created_at=timezone.now() - timedelta(hours=1))  # its weights take long to arrive
    tick()
    drained(endpoint)
    tick()
    assert leases_of(endpoint) == []
    endpoint.job.refresh_from_db()
    assert endpoint.job.running_at is None
    assert shown() == "asleep"
    gateway_reports(endpoint=endpoint, arrived=1, queued=1, is_wanted=True)
    tick()
    assert shown() == "starting"
    bring_up(endpoint)
    assert shown() == "ready"


def test_a_replica_that_fails_most_of_its_requests_is_replaced_before_it_goes(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    from jobs.endpoints import ingest
    from jobs.gateway.messages import GatewaySync, ReplicaLoad
    from tests.integration.jobs.serving.conftest import GATEWAY

    _, endpoint = launch(alice, replicas={"min": 1, "max": 2})
    gateway_reports()
    tick()
    (lease,) = bring_up(endpoint)
    bad = ReplicaLoad(lease_id=lease.pk, is_ready=True, in_flight=0, served=10, failed=90)
    gateway = {"gateway_id": GATEWAY, "boot_id": GATEWAY, "url": "ws://127.0.0.1:8003", "public_key": "ab" * 32}
    ingest.ingest_sync(GatewaySync(**gateway, replicas=[bad]))
    tick()
    assert states(endpoint) == ["ready", "starting"]  # the bad one answers until there is a better one
    bring_up(endpoint)
    tick()
    assert states(endpoint) == ["draining", "ready"]


def test_a_new_version_takes_over_when_it_is_ready_and_not_before(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint = launch(alice, rollout={"step": "1m"})
    gateway_reports()
    tick()
    bring_up(endpoint)
    tick()
    deploy(endpoint, limits={"max_tokens": 10}, rollout={"step": "1m"})
    tick()
    assert shares(endpoint) == {1: ("live", 100), 2: ("starting", 0)}
    assert states(endpoint) == ["ready", "starting"]
    bring_up(endpoint)
    tick()
    assert shares(endpoint) == {1: ("live", 0), 2: ("live", 100)}
    _, table = table_now()
    assert [(each.version, each.share) for each in table.endpoints[0].versions] == [(2, 100)]
    assert table.endpoints[0].limits.max_tokens == 10
    EndpointVersion.objects.filter(number=2).update(stepped_at=timezone.now() - timedelta(minutes=2))
    gateway_reports(leases_of(endpoint))
    tick()
    assert shares(endpoint) == {1: ("retired", 0), 2: ("live", 100)}
    tick()
    drained(endpoint)
    assert states(endpoint) == ["gone", "ready"]


def test_a_new_version_without_room_says_what_it_waits_for_and_the_old_one_answers(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    devices = Device.objects.filter(node__in=[bob, carol]).count()
    all_of_them = {"min": devices, "max": devices}
    _, endpoint = launch(alice, replicas=all_of_them)
    gateway_reports()
    for _ in range(2):
        tick()
        old = bring_up(endpoint)
    deploy(endpoint, replicas=all_of_them, limits={"max_tokens": 10})
    tick()
    assert states(endpoint) == ["ready"] * devices
    assert shares(endpoint) == {1: ("live", 100), 2: ("starting", 0)}
    endpoint.job.refresh_from_db()
    assert endpoint.job.waiting_for.startswith("Version 2 waits for room beside the one before it, 60 min at most: ")
    EndpointVersion.objects.filter(number=2).update(created_at=timezone.now() - timedelta(minutes=61))
    gateway_reports(old)
    tick()
    assert shares(endpoint) == {1: ("live", 100), 2: ("rolled_back", 0)}
    tick()
    endpoint.job.refresh_from_db()
    assert endpoint.job.waiting_for == ""


def test_a_deploy_in_the_middle_of_a_rollback_is_not_what_is_rolled_back(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint, _ = up(alice)
    tick()
    deploy(endpoint, limits={"max_tokens": 10})
    tick()
    bring_up(endpoint)
    tick()
    versions.roll_back(endpoint.pk, organisation=alice)
    third = deploy(endpoint, limits={"max_tokens": 30})
    tick()
    assert shares(endpoint)[3] == ("starting", 0)
    endpoint.versions.filter(pk=third.pk).update(state="rolled_back")
    assert deploy(endpoint, limits={"max_tokens": 30}).number == 4, "the same file again is another try"


def test_a_new_version_that_never_starts_is_rolled_back_while_the_old_one_answers(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    old = bring_up(endpoint)
    tick()
    deploy(endpoint, engine="vllm")
    for _ in range(3):
        gateway_reports(old)
        Replica.objects.filter(state="gone").update(ended_at=timezone.now() - timedelta(hours=1))
        tick()
        new = leases_of(endpoint)[-1]
        assert new.attempt.replica.version.number == 2
        stage.finish(new, Reason.BAD_CONFIG)
    gateway_reports(old)
    tick()
    assert shares(endpoint) == {1: ("live", 100), 2: ("rolled_back", 0)}
    assert endpoint.job.__class__.objects.get(pk=endpoint.job_id).state == "running"


def test_starts_that_a_nodes_leaving_ended_say_nothing_against_a_new_version(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    old = bring_up(endpoint)
    tick()
    deploy(endpoint, limits={"max_tokens": 10})
    for _ in range(3):
        gateway_reports(old)
        Replica.objects.filter(state="gone").update(ended_at=timezone.now() - timedelta(hours=1))
        Lease.objects.filter(ended_at__isnull=False).update(ended_at=timezone.now() - timedelta(hours=2))
        tick()
        new = leases_of(endpoint)[-1]
        assert new.attempt.replica.version.number == 2
        stage.finish(new, Reason.NODE_DRAINED)
    gateway_reports(old)
    tick()
    assert shares(endpoint) == {1: ("live", 100), 2: ("starting", 0)}


def test_replicas_on_equal_devices_are_compared_whatever_they_cost(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint = launch(alice, replicas={"min": 2, "max": 2})
    gateway_reports()
    tick()
    seen = observe.observe_endpoint(endpoint, timezone.now())
    assert seen is not None
    cheap, dear = seen.leases
    assert cheap.price_usd_micros_per_device_hour != dear.price_usd_micros_per_device_hour
    assert observe.node_class(cheap) == observe.node_class(dear) != ""
    Device.objects.filter(node=dear.node).update(model="another one")
    seen = observe.observe_endpoint(endpoint, timezone.now())
    assert seen is not None and len({observe.node_class(lease) for lease in seen.leases}) == 2


def test_what_past_starts_took_is_read_at_once_however_many_there_were(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    version = endpoint.versions.get()
    counts = []
    for _ in range(3):
        Replica.objects.filter(state="gone").update(ended_at=timezone.now() - timedelta(hours=1))
        tick()
        with CaptureQueriesContext(connection) as queries:
            observe.predict_start(endpoint, version, timezone.now())
        counts.append(len(queries))
        (lease,) = bring_up(endpoint)
        stage.finish(lease, Reason.NODE_DRAINED)
    assert len(set(counts)) == 1


def test_a_gateways_median_counts_as_one_measurement_however_many_answers_it_is_of(
    alice: Organisation, bob: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = bring_up(endpoint)
    replica = lease.attempt.replica
    for median in (100.0, 400.0):
        minutes.add_samples({replica.pk: {"served": 1000, "first_token_ms_p50": median}})
    (sums,) = minutes.read_samples([replica], timezone.now()).values()
    assert (sums["served"], sums["timed"]) == (2000, 2)
    deviation = math.sqrt(sums["log_ms_squares"] / 2 - (sums["log_ms_sum"] / 2) ** 2)
    assert deviation == pytest.approx(math.log(2))  # 2,000 answers of which two things are known are no proof


def test_deploying_what_is_there_changes_nothing_and_other_terms_are_refused(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    same = deploy(endpoint)
    assert same.number == 1 and endpoint.versions.count() == 1
    dearer = from_wire({**serve_spec(), "budget": {"max_total": "99.00"}})
    with pytest.raises(DeployMismatch):
        versions.deploy(endpoint.pk, dearer, organisation=alice, files=None, actor="alice")


def test_its_owner_rolls_a_version_back_while_the_old_one_is_still_there(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    bring_up(endpoint)
    tick()
    with pytest.raises(NothingToRollBack):
        versions.roll_back(endpoint.pk, organisation=alice)
    deploy(endpoint, limits={"max_tokens": 10})
    tick()
    bring_up(endpoint)
    tick()
    assert shares(endpoint) == {1: ("live", 0), 2: ("live", 100)}
    versions.roll_back(endpoint.pk, organisation=alice)
    gateway_reports(leases_of(endpoint))
    endpoint.refresh_from_db()
    tick()
    assert shares(endpoint) == {1: ("live", 100), 2: ("rolled_back", 0)}
    endpoint.refresh_from_db()
    assert endpoint.is_rollback_requested is False
