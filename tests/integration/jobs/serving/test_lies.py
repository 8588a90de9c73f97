"""Agents and gateways that lie about replicas, use and load."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from jobs.endpoints import ingest, usage
from jobs.endpoints.views import list_endpoints
from jobs.gateway.messages import AuditRow, GatewaySync, ReplicaLoad
from jobs.models import Lease
from jobs.serving import audits
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage
from tests.integration.jobs.serving import scenes
from tests.integration.jobs.serving.conftest import (
    GATEWAY,
    gateway_reports,
    launch,
    leases_of,
    states,
    tick,
    up,
)

# --- Bob's agent lies


def test_an_agents_word_alone_is_no_deadline(alice: Organisation, bob: Node) -> None:
    job, _endpoint, (lease,) = up(alice)
    stage.finish(lease, Reason.DEADLINE_EXCEEDED)
    job.refresh_from_db()
    assert job.state == "running"


def test_a_replica_that_leaves_by_itself_is_paid_while_ready_and_earns_no_name(alice: Organisation, bob: Node) -> None:
    _job, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = leases_of(endpoint)
    stage.send_report(lease, AttemptState.PREPARING)
    stage.send_report(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    gateway_reports()  # which never had it as ready
    stage.finish(lease, Reason.COMPLETED)
    ended = Lease.objects.get(pk=lease.pk)
    bob.refresh_from_db()
    assert (ended.billable_ms, bob.successes) == (0, 0)


@pytest.mark.parametrize("engine", ["souk\0", "so\ud800uk"])
def test_odd_letters_of_a_replica_do_not_stop_a_gateways_sync(alice: Organisation, bob: Node, engine: str) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    (lease,) = leases_of(endpoint)
    load = ReplicaLoad(lease_id=lease.pk, is_ready=True, in_flight=0, engine=engine, capabilities=[engine], why=engine)
    ingest.ingest_sync(GatewaySync(gateway_id=GATEWAY, boot_id=uuid4(), replicas=[load]))
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
    assert audits.ingest_audits([row]) == []


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
    gateway_reports()
    assert usage.ingest_usage(GATEWAY, rows) == len(rows)


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
            ingest.ingest_sync(GatewaySync.model_validate_json(text))
        tick()
    tick()
    endpoint.refresh_from_db()
    assert endpoint.desired >= 1
    assert list_endpoints([endpoint])
