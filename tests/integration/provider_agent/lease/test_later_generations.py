"""What a later assignment of a lease may change: the gang, its checkpoint and what the lease may cost, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from provider_agent.context import AgentContext
from provider_agent.errors import AssignmentRefused
from provider_agent.journal import LeaseEntry
from provider_agent.lease.assignments import accept_assignment, accept_generation
from provider_agent.protocol import GangPlace, PaymentTerms, Program, charge
from tests.integration.provider_agent.conftest import Bob
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

PLACE = GangPlace(nodes=2, node_rank=1, master_address="127.0.0.1")
TERMS = PaymentTerms(asset="TUSD", token="0x" + "ab" * 20, chain_id=31337, rate_per_hour=3_600_000, cap=10**9)


@pytest.fixture
def lease(bob: Bob, server: FakeServer, context: AgentContext) -> Lease:
    """A lease in a gang of two, which is in the agent's journal."""
    return server.give(bob.assignment(program=Program(runtime="train", config={}), gang=PLACE, payment=TERMS))


@pytest.fixture
def entry(lease: Lease, context: AgentContext) -> LeaseEntry:
    return accept_assignment(context, lease.desired)


def later(server: FakeServer, lease: Lease, **changes: Any) -> Lease:
    server.regroup(lease, lease.assignment.model_copy(update={"generation": 1} | changes))
    return lease


def test_a_gang_may_have_another_size_and_this_node_another_rank(
    server: FakeServer, context: AgentContext, lease: Lease, entry: LeaseEntry
) -> None:
    place = PLACE.model_copy(update={"nodes": 3, "node_rank": 2})
    changes = {"gang": place, "payment": TERMS.model_copy(update={"cap": 10**6}), "cap_usd_micros": 1, "seconds_max": 5}
    assert accept_generation(context, entry, later(server, lease, **changes).desired)
    (kept,) = context.journal.load_leases()
    assert (kept.assignment.gang, kept.assignment.cap, kept.assignment.generation) == (place, 10**6, 1)
    assert not accept_generation(context, entry, lease.desired), "it has that one"


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"rate_usd_micros_per_hour": 1}, "more than its members"),
        ({"payment": TERMS.model_copy(update={"rate_per_hour": 1})}, "more than its members"),
        ({"payment": TERMS.model_copy(update={"token": "0x" + "cd" * 20})}, "more than its members"),
        ({"payment": None}, "more than its members"),
        ({"program": Program(command=["true"])}, "more than its members"),
        ({"gang": PLACE.model_copy(update={"nodes": 1, "node_rank": 0})}, "no such place"),
        ({"gang": PLACE.model_copy(update={"node_rank": 2})}, "no such place"),
        ({"gang": PLACE.model_copy(update={"devices_per_node": 2})}, "no such place"),
        ({"payment": TERMS.model_copy(update={"cap": charge(TERMS.rate_per_hour, 60_000) - 1})}, "less than this node"),
    ],
)
def test_anything_else_is_refused(
    server: FakeServer,
    context: AgentContext,
    lease: Lease,
    entry: LeaseEntry,
    changes: dict[str, Any],
    mistake: str,
) -> None:
    entry.billable_ms = 60_000
    before = entry.assignment
    with pytest.raises(AssignmentRefused, match=mistake):
        accept_generation(context, entry, later(server, lease, **changes).desired)
    assert entry.assignment == before
