"""Endpoints under attack: deploys that are none, agents and replicas that lie, deadlines and budgets at bad moments."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing import holds, verify
from billing.models import Settlement
from jobs import fleet, leasing, lifecycle, reports, sweeps
from jobs.gateway.table import AuditRow, EndpointLoad, GatewaySync, ReplicaLoad
from jobs.job_views import show_job
from jobs.models import Artifact, Attempt, Endpoint, EndpointVersion, Job, Lease, Replica
from jobs.serving import audits, endpoints, hearing, placing, seeing, usage, windows
from jobs.serving.errors import ModelNotReady
from jobs.serving.telling import table_now
from jobs.serving.views import list_endpoints
from jobs.spec import SpecErrors, from_wire
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import SoukError
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage
from tests.integration.jobs.api_clients import API, client_of, post
from tests.integration.jobs.serving import scenes
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
from tests.integration.racing import race
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
    _job, endpoint, _ = up(alice)
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
    job, _endpoint, (lease,) = up(alice)
    stage.finish(lease, Reason.DEADLINE_EXCEEDED)
    job.refresh_from_db()
    assert job.state == "running"


def test_a_replica_that_leaves_by_itself_is_paid_while_it_was_ready_and_earns_no_name(
    alice: Organisation, bob: Node
) -> None:
    _job, endpoint = launch(alice)
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
    _, endpoint = launch(alice)
    gateway_says()
    endpoint = Endpoint.objects.select_related("job__quote__asset", "job__organisation").get(pk=endpoint.pk)
    looks = [seeing.look(endpoint, timezone.now()) for _ in range(2)]  # both before either has done anything
    for seen in looks:
        assert seen is not None
        placing.place_replicas(endpoint, seen.versions[0], 1, placed=seen.placed)
    assert len(leases_of(endpoint)) == 1


def test_gateways_that_name_the_same_in_other_orders_never_wait_in_a_circle(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    leases = []
    for name in ("one", "two", "three", "four"):
        job = stage.submit(alice, from_wire({**serve_spec(), "name": name}))
        gateway_says()
        tick()
        leases += bring_up(Endpoint.objects.get(job=job))

    def says(order: int) -> Callable[[], object]:
        names = sorted(leases, key=lambda lease: lease.pk, reverse=order > 0)
        said = GatewaySync(
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
        return lambda: [hearing.take_in(said) for _ in range(60)]

    found = race(says(0), says(1), says(0), says(1))
    assert not [each for each in found if isinstance(each, Exception)]


# --- gateways that lie


def test_absurd_use_is_set_aside_and_what_follows_is_booked(alice: Organisation, bob: Node) -> None:
    _, endpoint, (lease,) = up(alice)
    key = scenes.key(alice)
    absurd: list[dict[str, Any]] = [
        {"part": 10**30},
        {"part": -1},
        {"version": 10**30},
        {"input_tokens": 10**30},
        {"cost_usd_micros": 10**30},
        {"at_ms": 10**30},
        {"at_ms": -(10**30)},
        {"total_ms": 10**30, "queue_ms": -(10**30), "first_token_ms": 10**30},
        {"model": "a\0" * 300},
        {"model": "a\0", "version": 77},
        {"lease_id": uuid4()},
    ]
    rows = [scenes.row(seq, key, endpoint, **more) for seq, more in enumerate(absurd, 1)]
    rows.append(scenes.row(len(rows) + 1, key, endpoint, lease_id=lease.pk))
    gateway_says()
    assert usage.take_in(GATEWAY, rows) == len(rows)


def test_absurd_loads_neither_stop_a_sync_nor_the_tick(alice: Organisation, bob: Node) -> None:
    _, endpoint, leases = up(alice, replicas={"min": 1, "max": 2})
    for number in (10**400, -(10**400), 2**31):
        body = {
            "gateway_id": str(GATEWAY),
            "boot_id": str(uuid4()),
            "url": "ws://127.0.0.1:8003",
            "public_key": "ab" * 32,
            "loads": [
                {
                    "endpoint_id": str(endpoint.pk),
                    "in_flight": number,
                    "queued": number,
                    "arrived": number,
                    "queue_seconds_max": number,
                    "failed": number,
                    "refused": number,
                },
                {
                    "endpoint_id": str(uuid4()),
                    "in_flight": 1,
                    "queued": 1,
                    "arrived": 9,
                    "queue_seconds_max": 1,
                    "failed": 1,
                },
            ],
            "replicas": [
                {
                    "lease_id": str(leases[0].pk),
                    "is_ready": True,
                    "in_flight": number,
                    "served": number,
                    "output_tokens": number,
                    "failed": number,
                    "tokens_per_second": number,
                    "first_token_ms_p50": number,
                },
                {"lease_id": str(uuid4()), "is_ready": True, "in_flight": 1, "served": 1},
            ],
        }
        text = json.dumps(body)
        for _ in range(3):
            hearing.take_in(GatewaySync.model_validate_json(text))
        tick()
    tick()
    endpoint.refresh_from_db()
    assert endpoint.desired >= 1
    assert list_endpoints([endpoint])


# --- long lives


def test_hundreds_of_ended_replicas_cost_no_query_each(alice: Organisation, bob: Node) -> None:
    job, endpoint, (lease,) = up(alice)
    _end_many(endpoint, lease, 300)
    stage.see_running(lease, seconds=1000)
    stage.bill(lease, ms=1_000_000)
    gateway_says([lease])
    for verb, most in (
        (lambda: windows.settle_one(job.pk), 40),
        (lambda: windows.keep_window(job.pk), 30),
        (lambda: seeing.look(Endpoint.objects.get(), timezone.now()), 30),
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
        Attempt(job=endpoint.job, number=100 + number, slot=0, state="cancelled", reason="replica_retired")
        for number in range(count)
    ]
    Attempt.objects.bulk_create(attempts)
    version = endpoint.versions.get()
    Replica.objects.bulk_create(
        Replica(endpoint=endpoint, version=version, attempt=attempt, state="gone", ended_at=timezone.now())
        for attempt in attempts
    )
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
            state="ended",
            charge_units=0,
            charge_usd_micros=0,
            billable_ms=0,
            ended_at=timezone.now(),
        )
        for attempt in attempts
    )


# --- doors


def test_a_rollout_that_is_cancelled_settles_once_and_the_ledger_adds_up(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, (_one,) = up(alice)
    deploy(endpoint, serve_spec(limits={"max_tokens": 7}))
    tick()
    leases = bring_up(endpoint)
    assert len(leases) == 2
    for lease in leases:
        stage.see_running(lease, seconds=3600)
        stage.bill(lease, ms=3_600_000)
    gateway_says(leases)
    found = race(lambda: lifecycle.cancel(job.pk, actor="alice"), tick, lambda: windows.settle_one(job.pk), tick)
    assert not [each for each in found if isinstance(each, Exception)]
    for lease in leases_of(endpoint):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert job.state == "cancelled" and not holds.is_open(job.pk)
    assert Settlement.objects.filter(job_id=job.pk, is_final=True).count() == 1
    assert set(endpoint.versions.values_list("state", flat=True)) == {"retired"}
    assert verify.verify().is_true


def test_an_endpoint_that_is_launched_again_serves_what_it_served_last(alice: Organisation, bob: Node) -> None:
    job, endpoint, _ = up(alice)
    deploy(endpoint, serve_spec(limits={"max_tokens": 7}))
    lifecycle.cancel(job.pk, actor="alice")
    for lease in leases_of(endpoint):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    again = lifecycle.resubmit(job.pk, actor="alice")
    assert again.spec["serve"]["limits"]["max_tokens"] == 7


@pytest.mark.parametrize("payment", [{"mode": "escrow"}, {"asset": "ETH"}, {"asset": "CRED"}])
def test_endpoints_are_paid_in_dollars(alice: Organisation, payment: dict[str, Any]) -> None:
    with pytest.raises(SpecErrors):
        from_wire({**serve_spec(), "payment": payment})


def test_mallory_and_those_who_only_read_change_no_endpoint(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    body, path = {"spec": serve_spec(limits={"max_tokens": 7})}, f"/endpoints/{endpoint.pk}"
    mallory = client_of(stage.organisation("mallory"))
    reader = client_of(alice, [Scope.JOBS_READ])
    for client, wanted in ((mallory, 404), (reader, 403)):
        assert post(client, f"{path}/versions", body, key=str(uuid4())).status_code == wanted
        assert post(client, f"{path}/take-back").status_code in {wanted, 404}
    assert mallory.get(f"{API}{path}").status_code == 404
    assert endpoint.versions.count() == 1


def test_the_output_of_another_organisations_training_is_not_served(alice: Organisation, bob: Node) -> None:
    carol = stage.organisation("carola", usd_micros=50 * DOLLAR)
    theirs = stage.submit(carol)
    Artifact.objects.create(organisation=carol, job=theirs, kind="output", state="complete")
    _, endpoint, _ = up(alice)
    for model in ({"job": str(theirs.pk)}, {"job": str(uuid4())}):
        with pytest.raises(ModelNotReady):
            deploy(endpoint, {**serve_spec(), "serve": {"model": model}})


def test_an_endpoint_that_spends_all_pauses_goes_on_and_ends_with_every_cent_told(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, leases = up(alice, replicas={"min": 2, "max": 2})
    assert len(leases) == 2
    for round_ in range(2):
        for lease in leases_of(endpoint):
            hours = lease.cap_units / lease.rate_units_per_hour
            stage.see_running(lease, seconds=hours * 3600)
            stage.bill(lease, ms=int(hours * 3_600_000) - 1000)
        gateway_says(leases_of(endpoint))
        windows.keep_windows()
        sweeps.sweep_jobs()
        told = [lease for lease in leases_of(endpoint) if lease.stop_reason]
        assert told, round_
        for lease in told:
            stage.finish(lease, Reason.BUDGET_EXHAUSTED)
            tick()
    for _ in range(8):
        for lease in bring_up(endpoint):
            hours = lease.cap_units / lease.rate_units_per_hour
            stage.see_running(lease, seconds=hours * 3600)
            stage.bill(lease, ms=max(int(hours * 3_600_000) - 1000, 0))
            gateway_says([lease])
            sweeps.sweep_jobs()
            stage.finish(lease, Reason.BUDGET_EXHAUSTED)
        Replica.objects.filter(state="gone").update(ended_at=timezone.now() - timedelta(hours=1))
        tick()
    job.refresh_from_db()
    assert job.state == "paused", (job.waiting_for, states(endpoint))
    assert Attempt.objects.count() < 20
    charged = sum(Lease.objects.values_list("charge_units", flat=True))
    assert charged <= job.cap_usd_micros
    lifecycle.resume(job.pk, cap_usd_micros=40 * DOLLAR, actor="alice")
    tick()
    assert leases_of(endpoint)
    lifecycle.cancel(job.pk, actor="alice")
    for lease in leases_of(endpoint):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert job.state == "cancelled" and not holds.is_open(job.pk)
    assert sum(Settlement.objects.values_list("charged", flat=True)) == charged
    assert verify.verify().is_true


def test_providers_that_drain_quarantine_or_fall_silent_leave_an_endpoint_that_heals(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, (lease,) = up(alice)
    Node.objects.filter(pk=lease.node_id).update(state="quarantined")
    sweeps.sweep_jobs()
    _, table = table_now()
    assert [row.state for row in table.replicas] == ["draining"]
    stage.finish(lease, Reason.NODE_QUARANTINED)
    fleet.forget_supply()
    tick()
    (second,) = bring_up(endpoint)
    assert second.node_id != lease.node_id
    reports.lose(second.pk, Reason.NODE_SILENT, "The node stopped answering.")
    job.refresh_from_db()
    assert job.state == "running" and states(endpoint) == ["gone", "gone"]
    Node.objects.filter(pk=lease.node_id).update(state="online")
    fleet.forget_supply()
    Replica.objects.update(ended_at=timezone.now() - timedelta(hours=1))
    tick()
    assert len(leases_of(endpoint)) == 1
