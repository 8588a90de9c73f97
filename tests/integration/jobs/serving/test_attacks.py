"""Endpoints under attack: deploys that are none, agents and replicas that lie, deadlines and budgets at bad moments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from billing import holds
from billing.models import Settlement
from jobs import lifecycle, sweeps
from jobs.gateway.table import AuditRow, GatewaySync, ReplicaLoad
from jobs.models import Artifact, Endpoint, EndpointVersion, Job, Lease, Replica
from jobs.serving import audits, endpoints, hearing, keeping, windows
from jobs.serving.telling import table_now
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.foundation.errors import SoukError
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage
from tests.integration.jobs.serving.conftest import (
    GATEWAY,
    bring_up,
    gateway_says,
    launch,
    leases_of,
    serve_spec,
    states,
    tick,
)
from tests.stage import DOLLAR


def up(alice: Organisation, **serve: Any) -> tuple[Job, Endpoint, list[Lease]]:
    """An endpoint whose replicas answer."""
    job, endpoint = launch(alice, **serve)
    gateway_says()
    tick()
    leases = bring_up(endpoint)
    job.refresh_from_db()
    return job, endpoint, leases


def deploy(endpoint: Endpoint, spec: dict[str, Any], *, files: Artifact | None = None) -> EndpointVersion:
    return endpoints.deploy(
        endpoint.pk, from_wire(spec), organisation=endpoint.organisation, files=files, actor="alice"
    )


# --- Alice deploys


def test_a_training_is_not_deployed_as_a_version(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    training = {**serve_spec(), "kind": "train", "train": {"model": "tiny-llama", "data": "python-docs"}}
    training |= {"work": {"steps": 10}}
    del training["serve"]
    with pytest.raises(SoukError):
        deploy(endpoint, training)
    table_now()
    assert tick() >= 0


def test_files_that_did_not_arrive_are_not_deployed(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    half = Artifact.objects.create(organisation=alice, kind="input", state="uploading")
    with pytest.raises(SoukError):
        deploy(endpoint, serve_spec(limits={"max_tokens": 7}), files=half)


def test_a_version_with_more_replicas_has_a_window_for_them(alice: Organisation, bob: Node, carol: Node) -> None:
    job, endpoint, _ = up(alice)
    deploy(endpoint, serve_spec(replicas={"min": 4, "max": 4}))
    for _ in range(6):
        tick()
        bring_up(endpoint)
    assert len(leases_of(endpoint)) >= 4
    for lease in leases_of(endpoint):
        stage.see_running(lease, seconds=600)
    windows.keep_windows()
    assert not Lease.objects.filter(stop_reason=Reason.BUDGET_EXHAUSTED).exists()


# --- Bob's agent lies


def test_an_agents_word_alone_is_no_deadline(alice: Organisation, bob: Node) -> None:
    job, endpoint, (lease,) = up(alice)
    stage.finish(lease, Reason.DEADLINE_EXCEEDED)
    job.refresh_from_db()
    assert job.state == "running"


def test_a_replica_that_leaves_by_itself_is_paid_while_it_was_ready_and_earns_no_name(
    alice: Organisation, bob: Node
) -> None:
    job, endpoint = launch(alice)
    gateway_says()
    tick()
    (lease,) = leases_of(endpoint)
    stage.say(lease, AttemptState.PREPARING)
    stage.say(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    gateway_says()  # which never had it as ready
    stage.finish(lease, Reason.COMPLETED)
    ended = Lease.objects.get(pk=lease.pk)
    bob.refresh_from_db()
    assert (ended.billable_ms, bob.successes) == (0, 0)


@pytest.mark.parametrize("engine", ["souk\0", "so\ud800uk"])
def test_odd_letters_of_a_replica_do_not_stop_a_gateways_sync(alice: Organisation, bob: Node, engine: str) -> None:
    _, endpoint = launch(alice)
    gateway_says()
    tick()
    (lease,) = leases_of(endpoint)
    load = ReplicaLoad(lease_id=lease.pk, is_ready=True, in_flight=0, engine=engine, capabilities=[engine], why=engine)
    hearing.take_in(GatewaySync(gateway_id=GATEWAY, boot_id=uuid4(), replicas=[load]))
    assert states(endpoint) == ["ready"]


def test_odd_letters_of_a_checker_do_not_stop_a_gateways_sync(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint, (one, two) = up(alice, replicas={"min": 2, "max": 2})
    row = AuditRow(
        request_id=uuid4(),
        endpoint_id=endpoint.pk,
        lease_id=one.pk,
        checked_by=two.pk,
        verdict="mismatch",
        detail="a\0b",
        at_ms=0,
    )
    assert audits.take_in([row]) == []


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


def test_an_endpoint_whose_last_replica_breaks_with_the_budget_used_up_waits_for_more(
    alice: Organisation, bob: Node
) -> None:
    job, endpoint, (lease,) = up(alice)
    Job.objects.update(cap_usd_micros=DOLLAR)
    Lease.objects.update(cap_usd_micros=DOLLAR - 2, cap_units=DOLLAR - 2)
    stage.see_running(lease, seconds=3600)
    stage.bill(lease, ms=3_599_000)
    gateway_says([lease])
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
    from tests.integration.racing import race

    _, endpoint = launch(alice)
    gateway_says()
    race(*[keeping.keep_endpoints] * 4)
    assert len(leases_of(endpoint)) == 1
