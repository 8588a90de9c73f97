"""Alice serves a model on nodes of Bob, Carol and Mallory; what follows where their answers are computed again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest

from jobs.gateway.messages import AuditRow
from jobs.models import Audit, Endpoint, EndpointVersion, Lease, Replica, WrongReplica
from jobs.serving import audits
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState
from marketplace.nodes.watching import reputation
from provider_agent.protocol import Reason
from tests import stage
from tests.row_states import put_in_state
from tests.stage import DOLLAR

Verdict = Literal["match", "mismatch", "unclear"]
Market = dict[str, Lease]


@pytest.fixture
def market(db: None) -> Market:
    """One endpoint, a replica each on four nodes; Bob has two of the nodes."""
    alice = stage.organisation("alice", usd_micros=50 * DOLLAR)
    bobs = stage.node("bob")
    stage.node("bob2", provider=bobs.provider.organisation)
    for name in ("carol", "mallory"):
        stage.node(name)
    leases: Market = {}
    endpoint = version = None
    for _ in range(4):
        job, (lease,) = stage.running_job(alice)
        endpoint = endpoint or Endpoint.objects.create(job=job, organisation=alice, model="llm")
        version = version or EndpointVersion.objects.create(endpoint=endpoint, number=1, spec={})
        Replica.objects.create(endpoint=endpoint, version=version, attempt=lease.attempt)
        leases[lease.node.name] = lease
    assert set(leases) == {"bob", "bob2", "carol", "mallory"}
    return leases


def row(market: Market, whose: str, by: str, verdict: Verdict, request: UUID | None = None, **more: Any) -> AuditRow:
    """One verdict."""
    endpoint = Endpoint.objects.get()
    values = {
        "request_id": request or uuid4(),
        "endpoint_id": endpoint.pk,
        "lease_id": market[whose].pk,
        "checked_by": market[by].pk,
        "verdict": verdict,
        "detail": "decoding",
        "at_ms": int(time.time() * 1000),
    }
    return AuditRow(**values | more)


def accuse(market: Market, whose: str, *by: str) -> list[AuditRow]:
    """Several call the same answer wrong."""
    request = uuid4()
    return [row(market, whose, one, "mismatch", request) for one in by]


def test_two_against_one_end_the_lease_unpaid_by_its_providers_fault(market: Market):
    stage.see_running(market["mallory"], seconds=600)
    stage.bill(market["mallory"], ms=300_000)
    assert audits.ingest_audits(accuse(market, "mallory", "bob", "carol")) == [market["mallory"].pk]
    lease = Lease.objects.select_related("attempt").get(pk=market["mallory"].pk)
    assert lease.attempt.reason == Reason.REPLICA_WRONG
    assert (lease.attempt.fault, lease.charge_units) == ("provider", 0)
    assert "2 other nodes computed another answer: decoding" in lease.attempt.message
    wrong = WrongReplica.objects.get()
    assert wrong.audits.count() == 2


def test_it_counts_in_the_nodes_reputation_once(market: Market):
    before = reputation.reputation_of(Node.objects.get(name="mallory")).score
    rows = accuse(market, "mallory", "bob", "carol")
    audits.ingest_audits(rows)
    assert audits.ingest_audits(rows) == []
    node = Node.objects.get(name="mallory")
    assert (node.checks_failed, node.failures) == (1, 1)
    assert reputation.reputation_of(node).score < before
    assert node.state == NodeState.ONLINE


def test_a_node_that_was_wrong_twice_is_quarantined(market: Market):
    old = market["bob"]  # an earlier lease of Mallory's
    WrongReplica.objects.create(lease=old, node=market["mallory"].node, because="earlier")
    audits.ingest_audits(accuse(market, "mallory", "bob2", "carol"))
    assert Node.objects.get(name="mallory").state == NodeState.QUARANTINED


def test_a_node_that_was_quarantined_meanwhile_stays_so(market: Market):
    WrongReplica.objects.create(lease=market["bob"], node=market["mallory"].node, because="earlier")
    put_in_state(Node.objects.filter(name="mallory"), NodeState.QUARANTINED)
    assert audits.ingest_audits(accuse(market, "mallory", "bob2", "carol")) == [market["mallory"].pk]
    assert Node.objects.get(name="mallory").state == NodeState.QUARANTINED


def test_a_replica_that_was_ended_as_wrong_is_not_ended_twice(market: Market):
    for because in ("first", "second"):
        audits.end_wrong(market["mallory"].pk, because, [])
    assert WrongReplica.objects.get().because == "first"
    assert Node.objects.get(name="mallory").checks_failed == 1


@pytest.mark.parametrize(
    "rows_of",
    [
        lambda market: accuse(market, "mallory", "bob"),  # one report against one
        lambda market: accuse(market, "mallory", "bob", "bob2"),  # two nodes of one competitor
        lambda market: accuse(market, "bob", "bob", "mallory"),  # once only seen by the gateway itself
        lambda market: accuse(market, "mallory", "bob") + accuse(market, "mallory", "carol"),  # not of one answer
        lambda market: [row(market, "mallory", by, "unclear") for by in ("bob", "carol")],
        lambda market: [row(market, "mallory", by, "match") for by in ("bob", "carol")],
    ],
)
def test_less_proves_nothing(market: Market, rows_of: Callable[[Market], list[AuditRow]]):
    assert audits.ingest_audits(rows_of(market)) == []
    assert Audit.objects.exists() and not WrongReplica.objects.exists()


def test_a_providers_own_node_may_report_against_it(market: Market):
    assert audits.ingest_audits(accuse(market, "bob", "bob2", "carol")) == [market["bob"].pk]


def test_who_alone_calls_right_answers_wrong_is_wrong(market: Market):
    rows = []
    for _ in range(audits.OUTVOTED_MAX):
        request = uuid4()
        rows += [row(market, "bob", "mallory", "mismatch", request), row(market, "bob", "carol", "match", request)]
    assert audits.ingest_audits(rows[:-2]) == []
    assert audits.ingest_audits(rows[-2:]) == [market["mallory"].pk]


def test_what_a_gateway_saw_itself_counts_after_some_times(market: Market):
    rows = [row(market, "mallory", "mallory", "mismatch", detail="no commitment") for _ in range(audits.SEEN_MAX)]
    assert audits.ingest_audits(rows[:-1]) == []
    assert audits.ingest_audits(rows[-1:]) == [market["mallory"].pk]


def test_audits_of_leases_of_another_endpoint_are_ignored(market: Market):
    Replica.objects.filter(attempt=market["carol"].attempt).delete()
    assert audits.ingest_audits(accuse(market, "mallory", "bob", "carol")) == []
    assert audits.ingest_audits([row(market, "mallory", "bob", "mismatch", endpoint_id=uuid4())]) == []
    assert audits.ingest_audits([row(market, "mallory", "bob", "mismatch", lease_id=uuid4())]) == []
    assert Audit.objects.count() == 1


def test_old_matches_are_forgotten_and_proofs_kept(market: Market):
    audits.ingest_audits([row(market, "bob", "carol", "match"), *accuse(market, "mallory", "bob", "carol")])
    assert audits.forget_old() == 0
    Audit.objects.update(created_at=clock.now() - 2 * audits.WINDOW)
    assert audits.forget_old() == 1
    assert WrongReplica.objects.get().audits.count() == 2
