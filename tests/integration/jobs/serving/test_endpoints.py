"""An endpoint from launch to its last bill: replicas are placed, get ready, break, drain, and end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from billing.charging import holds
from jobs import lifecycle
from jobs.endpoints import replicas
from jobs.endpoints.errors import EndpointNameTaken, ModelNotReady
from jobs.endpoints.publish import table_now
from jobs.endpoints.versions import weights_of
from jobs.models import Artifact, Gateway, Lease, Replica
from jobs.running.assignments import make_assignment
from jobs.serving import reconcile
from jobs.spec import SpecErrors, from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import Assignment, Reason
from tests import stage
from tests.integration.jobs.serving.conftest import (
    bring_up,
    gateway_reports,
    launch,
    leases_of,
    serve_spec,
    states,
    tick,
)
from tests.row_states import create_in_state


def test_an_endpoint_is_placed_only_once_a_gateway_is_up(alice: Organisation, bob: Node) -> None:
    job, endpoint = launch(alice)
    tick()
    job.refresh_from_db()
    assert job.state == "queued" and "gateway" in job.waiting_for
    gateway_reports()
    tick()
    job.refresh_from_db()
    assert job.state == "placed" and len(leases_of(endpoint)) == 1
    assert holds.is_open(job.pk)


def test_a_replica_is_ready_when_a_gateway_reaches_it_and_not_before(alice: Organisation, bob: Node) -> None:
    job, endpoint = launch(alice)
    gateway_reports()
    tick()
    assert states(endpoint) == ["starting"]
    bring_up(endpoint)
    assert states(endpoint) == ["ready"]
    job.refresh_from_db()
    assert job.state == "running"
    tick()
    assert endpoint.versions.get().state == "live"


def test_the_assignment_names_the_gateway_and_what_is_served(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = leases_of(endpoint)
    assignment = Assignment.model_validate_json(make_assignment(lease).payload)
    assert assignment.program.runtime == "serve" and assignment.program.config["model"] == {"hub": "alice/llm"}
    assert assignment.serve is not None and assignment.serve.gateways[0].url == "ws://127.0.0.1:8003"
    assert assignment.serve.endpoint_id == endpoint.pk


def test_two_replicas_are_spread_over_providers_while_there_is_a_choice(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    _, endpoint = launch(alice, replicas={"min": 3, "max": 3})
    gateway_reports()
    tick()
    names = [lease.node.name for lease in leases_of(endpoint)]
    assert names[:2] == ["bobs-node", "carols-node"]
    assert len(names) == 3  # the third has no provider of its own left, and is placed all the same


def test_a_broken_replica_is_replaced_and_the_others_go_on(alice: Organisation, bob: Node, carol: Node) -> None:
    job, endpoint = launch(alice, replicas={"min": 2, "max": 2})
    gateway_reports()
    tick()
    first, second = bring_up(endpoint)
    stage.finish(first, Reason.PROCESS_VANISHED)
    assert states(endpoint) == ["gone", "ready"]
    job.refresh_from_db()
    assert job.state == "running"
    tick()
    assert [lease.pk == second.pk for lease in leases_of(endpoint)] == [True, False]
    assert leases_of(endpoint)[1].attempt.slot == 0  # the free one
    assert leases_of(endpoint)[1].node.name == "carols-node"  # where nothing of it broke


def test_what_the_provider_broke_is_paid_as_long_as_a_gateway_had_it_ready(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = bring_up(endpoint)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    Replica.objects.update(seen_at=timezone.now() - timedelta(seconds=60))
    stage.finish(lease, Reason.PROCESS_VANISHED)
    ended = Lease.objects.get(pk=lease.pk)
    assert ended.billable_ms is not None and 38_000 <= ended.billable_ms <= 50_000  # 40 s, and what this test took


def test_silent_gateways_cost_no_provider_anything(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = bring_up(endpoint)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    long_ago = timezone.now() - timedelta(seconds=60)
    Replica.objects.update(seen_at=long_ago)
    Gateway.objects.update(seen_at=long_ago)
    stage.finish(lease, Reason.PROCESS_VANISHED)
    assert Lease.objects.get(pk=lease.pk).billable_ms == 100_000


def test_a_ready_replica_that_no_gateway_reaches_is_starting_again(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    bring_up(endpoint)
    Replica.objects.update(seen_at=timezone.now() - timedelta(seconds=30))
    gateway_reports()
    tick()
    assert states(endpoint)[0] == "starting"  # and another may have been started beside it


def test_a_draining_replica_gets_no_new_requests_and_is_stopped_when_it_has_none(
    alice: Organisation, bob: Node
) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = bring_up(endpoint)
    gateway_reports([lease], in_flight=2)
    replicas.drain(Replica.objects.get(), reason="scaled_down")
    Replica.objects.update(draining_at=timezone.now() - timedelta(seconds=5))
    _, table = table_now()
    assert [row.state for row in table.replicas] == ["draining"]
    reconcile.stop_drained()
    assert Lease.objects.get().stop_reason == ""
    gateway_reports([lease], in_flight=0)
    reconcile.stop_drained()
    assert Lease.objects.get().stop_reason == Reason.REPLICA_RETIRED


def test_cancelling_stops_every_replica_and_settles_once(alice: Organisation, bob: Node, carol: Node) -> None:
    job, endpoint = launch(alice, replicas={"min": 2, "max": 2})
    gateway_reports()
    tick()
    for lease in bring_up(endpoint):
        stage.see_running(lease, seconds=3600)
        stage.bill(lease, ms=3_600_000)
    lifecycle.cancel(job.pk, actor="alice")
    first, second = leases_of(endpoint)
    assert first.stop_reason == second.stop_reason == Reason.CANCELLED_BY_CUSTOMER
    stage.finish(first, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert job.state == "running"
    stage.finish(second, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    endpoint.refresh_from_db()
    assert job.state == "cancelled" and not endpoint.is_open and not holds.is_open(job.pk)
    assert stage.earned(bob) == 900_000 and stage.earned(carol) == 1_800_000


def test_a_name_answers_for_one_open_endpoint_and_is_free_after_it(alice: Organisation, bob: Node) -> None:
    job, _ = launch(alice)
    with pytest.raises(EndpointNameTaken):
        launch(alice)
    lifecycle.cancel(job.pk, actor="alice")
    launch(alice)


def test_a_training_that_has_no_output_is_not_served(alice: Organisation, bob: Node) -> None:
    trained = stage.submit(alice)
    with pytest.raises(ModelNotReady):
        launch(alice, model={"job": str(trained.pk)})


def test_a_training_is_served_by_its_name_and_its_newest_output(alice: Organisation, bob: Node) -> None:
    older, newer = stage.submit(alice), stage.submit(alice)
    now = timezone.now()
    for job, hours in ((older, 2), (newer, 1)):
        done = {"organisation": alice, "job": job, "kind": "output", "completed_at": now - timedelta(hours=hours)}
        create_in_state(Artifact, "complete", **done)
    named = from_wire(serve_spec(model={"job": newer.name}))
    found = weights_of(alice, named)
    assert found is not None and found.job_id == newer.pk
    with pytest.raises(ModelNotReady, match=newer.name):
        weights_of(stage.organisation("mallory"), named)


def test_an_endpoint_whose_starts_all_break_by_its_owner_is_given_up(alice: Organisation, bob: Node) -> None:
    job, endpoint = launch(alice)
    gateway_reports()
    for _ in range(3):
        Replica.objects.update(ended_at=timezone.now() - timedelta(hours=1))
        tick()
        (lease,) = leases_of(endpoint)
        stage.finish(lease, Reason.BAD_CONFIG)
    job.refresh_from_db()
    assert job.state == "failed" and job.reason == "bad_config"


def test_short_lives_in_a_row_are_not_repeated_at_once(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    for _ in range(2):  # the first is replaced at once: most breaks are somebody's accident
        tick()
        (lease,) = leases_of(endpoint)
        stage.finish(lease, Reason.INTERNAL)
    tick()
    assert leases_of(endpoint) == []
    Replica.objects.update(ended_at=timezone.now() - timedelta(seconds=10))
    tick()
    assert len(leases_of(endpoint)) == 1


def test_a_serving_file_with_what_only_trainings_have_is_refused() -> None:
    with pytest.raises(SpecErrors) as caught:
        from_wire({**serve_spec(), "work": {"steps": 1}, "checkpoint": {"keep": 1}, "command": "true"})
    assert {error.path for error in caught.value.errors} == {"work", "checkpoint", "command"}
