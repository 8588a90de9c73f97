"""Alice serves a model; Bob and Carol provide; a gateway reports its load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs.endpoints import ingest, versions
from jobs.gateway.messages import EndpointLoad, GatewaySync, ReplicaLoad
from jobs.models import Artifact, Endpoint, EndpointVersion, Job, Lease, Replica
from jobs.serving import reconcile
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState
from tests import stage
from tests.integration.jobs.conftest import node_with_key
from tests.stage import DOLLAR

GATEWAY = UUID(int=1)


def serve_spec(**serve: Any) -> dict[str, Any]:
    """A job file that serves, with keys of its section replaced."""
    return {
        "kind": "serve",
        "name": "alices-llm",
        "resources": {"gpus": 1, "kind": "any"},
        "budget": {"max_total": "20.00"},
        "network": "public",
        "serve": {"model": {"hub": "alice/llm"}, **serve},
    }


def launch(alice: Organisation, **serve: Any) -> tuple[Job, Endpoint]:
    """An endpoint that was submitted a moment ago."""
    job = stage.submit(alice, from_wire(serve_spec(**serve)))
    return job, Endpoint.objects.get(job=job)


def deploy(endpoint: Endpoint, **serve: Any) -> EndpointVersion:
    """A new version of what Alice serves."""
    return deploy_spec(endpoint, serve_spec(**serve))


def deploy_spec(endpoint: Endpoint, spec: dict[str, Any], *, files: Artifact | None = None) -> EndpointVersion:
    """The same from a whole job file."""
    owner = endpoint.organisation
    return versions.deploy(endpoint.pk, from_wire(spec), organisation=owner, files=files, actor="alice")


def gateway_reports(
    ready: Iterable[Lease] = (), *, in_flight: int = 0, endpoint: Endpoint | None = None, **load: Any
) -> None:
    """One sync of the one gateway: these replicas are ready there, each with so many requests."""
    loads = []
    if endpoint is not None:
        seen = {"in_flight": in_flight, "queued": 0, "queue_seconds_max": 0.0, "arrived": 0, "failed": 0} | load
        loads = [EndpointLoad(endpoint_id=endpoint.pk, **seen)]
    replicas = [ReplicaLoad(lease_id=lease.pk, is_ready=True, in_flight=in_flight) for lease in ready]
    ingest.ingest_sync(
        GatewaySync(
            gateway_id=GATEWAY,
            boot_id=uuid4(),
            url="ws://127.0.0.1:8003",
            public_key="ab" * 32,
            loads=loads,
            replicas=replicas,
        )
    )


def tick() -> int:
    """One look at every endpoint."""
    return reconcile.reconcile_endpoints()


def leases_of(endpoint: Endpoint) -> list[Lease]:
    """The live ones, oldest first."""
    live = Lease.objects.live().filter(attempt__replica__endpoint=endpoint)
    return list(live.select_related("attempt__replica", "node").order_by("attempt__number"))


def bring_up(endpoint: Endpoint) -> list[Lease]:
    """Every replica that was placed is running, and the gateway reaches it."""
    leases = leases_of(endpoint)
    for lease in leases:
        if lease.running_at is None:
            stage.send_report(lease, AttemptState.PREPARING)
            stage.send_report(lease, AttemptState.RUNNING)
    gateway_reports(leases)
    return leases_of(endpoint)


def up(alice: Organisation, **serve: Any) -> tuple[Job, Endpoint, list[Lease]]:
    """An endpoint whose replicas answer."""
    job, endpoint = launch(alice, **serve)
    gateway_reports()
    tick()
    leases = bring_up(endpoint)
    job.refresh_from_db()
    return job, endpoint, leases


def states(endpoint: Endpoint) -> list[str]:
    """The states of all its replicas, oldest first."""
    return list(Replica.objects.filter(endpoint=endpoint).order_by("attempt__number").values_list("state", flat=True))


def _online(node: Node) -> Node:
    """Whose programs reach the hub."""
    node.facts = {**node.facts, "egress": True}
    node.save(update_fields=["facts"])
    return node


@pytest.fixture
def alice(transactional_db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=50 * DOLLAR)


@pytest.fixture
def bob(transactional_db: None) -> Node:
    return _online(node_with_key("bobs-node", price_usd_micros=DOLLAR))


@pytest.fixture
def carol(transactional_db: None) -> Node:
    return _online(node_with_key("carols-node", price_usd_micros=2 * DOLLAR))
