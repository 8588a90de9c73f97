"""Alice has five dollars, and Bob a node, or a gang of two of his three."""

from __future__ import annotations

import pytest

from jobs.running import generations
from tests import stage
from tests.integration.jobs.lifecycle.gang_rows import MINUTE_MS, follow, save
from tests.stage import DOLLAR


@pytest.fixture
def alice():
    return stage.organisation("alice", usd_micros=5 * DOLLAR)


@pytest.fixture
def bob():
    return stage.node("bobs-node")


@pytest.fixture
def rack():
    """Three equal nodes of Bob that reach each other; their agents know generations."""
    bob = stage.organisation("bob")
    nodes = [stage.node(f"gang-{i}", fabric="rack", provider=bob) for i in range(3)]
    for node in nodes:
        node.facts |= {"runtime_features": [generations.FEATURE]}
        node.save(update_fields=["facts"])
    return nodes


@pytest.fixture
def gang(alice, rack):
    """A training on two of them that has run for 100 s, with a checkpoint of step 50 at 60 s."""
    job, leases = stage.running_job(alice, resources={"gpus": 2, "nodes": 2, "kind": "any"})
    for lease in leases:
        stage.see_running(lease, seconds=100)
        stage.bill(lease, ms=100_000)
    follow(leases)
    save(job, leases, step=50, ms=MINUTE_MS)
    return job, leases
