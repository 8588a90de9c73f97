"""Deadlines, budgets and ticks at bad moments, and endpoints that live long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.charging import holds
from billing.models import Settlement
from jobs import lifecycle, sweeps
from jobs.api.job_views import show_job
from jobs.endpoints import ingest
from jobs.endpoints.views import list_endpoints
from jobs.gateway.messages import EndpointLoad, GatewaySync, ReplicaLoad
from jobs.leases import leasing
from jobs.models import Attempt, Endpoint, Job, Lease, Replica
from jobs.serving import observe, prepaid_windows, replica_placement
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.serving.conftest import (
    bring_up,
    gateway_reports,
    launch,
    leases_of,
    serve_spec,
    tick,
    up,
)
from tests.integration.racing import race
from tests.row_states import put_in_state
from tests.stage import DOLLAR

# --- deadlines and budgets


def test_a_sleeping_endpoint_ends_at_its_deadline(alice: Organisation, bob: Node) -> None:
    job, endpoint, (lease,) = up(alice, replicas={"min": 0, "max": 1})
    lifecycle.stop_leases([lease], Reason.REPLICA_RETIRED)
    stage.finish(lease, Reason.REPLICA_RETIRED)
    job.refresh_from_db()
    assert job.state == "running" and not leases_of(endpoint)
    Job.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert job.state == "completed" and not holds.is_open(job.pk)
    assert not Endpoint.objects.get().is_open


def test_a_deadline_ends_an_endpoint_whatever_ends_its_last_replica(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, (one, two) = up(alice, replicas={"min": 2, "max": 2})
    Job.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    sweeps.sweep_jobs()
    tick()
    assert len(leases_of(endpoint)) == 2  # nothing is started beside them
    stage.finish(one, Reason.DEADLINE_EXCEEDED)
    tick()
    assert len(leases_of(endpoint)) == 1
    stage.finish(two, Reason.PROCESS_VANISHED)
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert job.state == "completed" and Settlement.objects.filter(job_id=job.pk, is_final=True).count() == 1


def test_an_endpoint_whose_last_replica_breaks_without_budget_waits_for_more(alice: Organisation, bob: Node) -> None:
    job, endpoint, (lease,) = up(alice)
    Job.objects.update(cap_usd_micros=DOLLAR)
    Lease.objects.update(cap_usd_micros=DOLLAR - 2, cap_units=DOLLAR - 2)
    stage.see_running(lease, seconds=3600)
    stage.bill(lease, ms=3_599_000)
    gateway_reports([lease])
    stage.finish(lease, Reason.PROCESS_VANISHED)
    Replica.objects.update(ended_at=timezone.now() - timedelta(hours=1))
    tick()
    job.refresh_from_db()
    assert not leases_of(endpoint), "a lease for nothing"
    assert job.state == "paused"
    lifecycle.resume(job.pk, cap_usd_micros=20 * DOLLAR, actor="alice")
    tick()
    assert len(leases_of(endpoint)) == 1


def test_two_ticks_at_once_start_no_replica_twice(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    endpoint = Endpoint.objects.select_related("job__quote__asset", "job__organisation").get(pk=endpoint.pk)
    looks = [
        observe.observe_endpoint(endpoint, timezone.now()) for _ in range(2)
    ]  # both before either has done anything
    for seen in looks:
        assert seen is not None
        replica_placement.place_replicas(endpoint, seen.versions[0], 1, placed=seen.placed)
    assert len(leases_of(endpoint)) == 1


def test_gateways_that_name_the_same_in_other_orders_never_wait_in_a_circle(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    leases = []
    for name in ("one", "two", "three", "four"):
        job = stage.submit(alice, from_wire({**serve_spec(), "name": name}))
        gateway_reports()
        tick()
        leases += bring_up(Endpoint.objects.get(job=job))

    def says(order: int) -> Callable[[], object]:
        names = sorted(leases, key=lambda lease: lease.pk, reverse=order > 0)
        report = GatewaySync(
            gateway_id=UUID(int=2 + order),
            boot_id=uuid4(),
            loads=[
                EndpointLoad(
                    endpoint_id=lease.attempt.replica.endpoint_id,
                    in_flight=1,
                    queued=0,
                    queue_seconds_max=0,
                    arrived=1,
                    failed=0,
                )
                for lease in names
            ],
            replicas=[ReplicaLoad(lease_id=lease.pk, is_ready=True, in_flight=1, served=1) for lease in names],
        )
        return lambda: [ingest.ingest_sync(report) for _ in range(60)]

    found = race(says(0), says(1), says(0), says(1))
    assert not [each for each in found if isinstance(each, Exception)]


# --- long lives


def test_hundreds_of_ended_replicas_cost_no_query_each(alice: Organisation, bob: Node) -> None:
    job, endpoint, (lease,) = up(alice)
    _end_many(endpoint, lease, 300)
    stage.see_running(lease, seconds=1000)
    stage.bill(lease, ms=1_000_000)
    gateway_reports([lease])
    for verb, most in (
        (lambda: prepaid_windows.settle_one(job.pk), 40),
        (lambda: prepaid_windows.refill_window(job.pk), 30),
        (lambda: observe.observe_endpoint(Endpoint.objects.get(), timezone.now()), 30),
        (lambda: list_endpoints([endpoint]), 10),
        (lambda: show_job(Job.objects.get(pk=job.pk)), 15),
    ):
        with CaptureQueriesContext(connection) as asked:
            verb()
        assert len(asked) <= most
    lifecycle.cancel(job.pk, actor="alice")
    with CaptureQueriesContext(connection) as asked:
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    assert len(asked) <= 150
    job.refresh_from_db()
    assert job.state == "cancelled"


def test_a_job_with_hundreds_of_ended_replicas_is_shown_in_few_words(alice: Organisation, bob: Node) -> None:
    job, endpoint, (lease,) = up(alice)
    _end_many(endpoint, lease, 300)
    assert len(show_job(job).attempts) <= 100


def _end_many(endpoint: Endpoint, like: Lease, count: int) -> None:
    """As if so many replicas had come and gone before, each charged a little."""
    attempts = [
        Attempt(job=endpoint.job, number=100 + number, slot=100 + number, reason="replica_retired")
        for number in range(count)
    ]
    Attempt.objects.bulk_create(attempts)
    put_in_state(Attempt.objects.filter(pk__in=[each.pk for each in attempts]), "cancelled")
    version = endpoint.versions.get()
    Replica.objects.bulk_create(Replica(endpoint=endpoint, version=version, attempt=attempt) for attempt in attempts)
    put_in_state(Replica.objects.filter(attempt__in=attempts), "gone", ended_at=timezone.now())
    price = leasing.LeasePrice(
        price_usd_micros=DOLLAR, cap_usd_micros=10, asset=like.asset, rate_units_per_hour=DOLLAR, cap_units=10
    )
    Lease.objects.bulk_create(
        Lease(
            attempt=attempt,
            node=like.node,
            offer=like.offer,
            fence=10_000_000 + attempt.number,
            node_rank=0,
            device_count=1,
            price_usd_micros_per_device_hour=price.price_usd_micros,
            rate_usd_micros_per_hour=DOLLAR,
            cap_usd_micros=10,
            asset=like.asset,
            rate_units_per_hour=DOLLAR,
            cap_units=10,
            lease_until=timezone.now(),
            charge_units=0,
            charge_usd_micros=0,
            billable_ms=0,
            ended_at=timezone.now(),
        )
        for attempt in attempts
    )
    put_in_state(Lease.objects.filter(attempt__in=attempts), "ended")
