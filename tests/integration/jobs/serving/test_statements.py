"""Bob's agent states what it answered; where the gateways counted otherwise, his pay waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from billing.charging import settlement
from billing.models import Alert, SettlementShare
from jobs.bills.bill import make_bill
from jobs.client.verify.bill import verify_bill
from jobs.endpoints import payments, usage, usage_statements
from jobs.endpoints.usage_statements import StatementRefused
from jobs.models import Endpoint, EndpointKey, Job, Lease, LeaseStatement, LeaseUse, UsageRecord
from jobs.serving import prepaid_windows
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import ZERO_HASH
from provider_agent.protocol.money.usage_statements import (
    ServeStatement,
    SignedStatement,
    sign_statement,
    statement_digest,
)
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.serving import scenes
from tests.row_states import put_in_state

pytestmark = pytest.mark.django_db(transaction=True)

MILLION = 1_000_000


@pytest.fixture
def endpoint(alice: Organisation) -> Endpoint:
    return scenes.endpoint(alice)


@pytest.fixture
def key(alice: Organisation) -> EndpointKey:
    return scenes.key(alice)


@pytest.fixture
def lease(endpoint: Endpoint, bob: Node) -> Lease:
    payments.open_window(endpoint.job)
    return scenes.run(endpoint.job, endpoint, bob)


def stated(lease: Lease, *, requests: int, tokens: int, key: str | None = None, **more: Any) -> SignedStatement:
    """The agent's next statement."""
    newest = LeaseStatement.objects.filter(pk=lease.pk).first()
    fields: dict[str, Any] = {
        "lease_id": lease.pk,
        "seq": newest.seq + 1 if newest else 1,
        "requests": requests,
        "input_tokens": tokens,
        "output_tokens": tokens,
        "prev_digest": newest.digest if newest else ZERO_HASH,
    }
    return sign_statement(key or stage.receipt_key(lease.node.name), ServeStatement(**(fields | more)))


def _count(lease: Lease, key: EndpointKey, endpoint: Endpoint, requests: int, *, is_reported: bool = True) -> None:
    rows = [
        scenes.row(seq, key, endpoint, lease_id=lease.pk, is_reported=is_reported) for seq in range(1, requests + 1)
    ]
    usage.ingest_usage(scenes.gateway(), rows)


def test_statements_are_kept_in_their_chain_and_repeats_are_harmless(lease: Lease) -> None:
    first = stated(lease, requests=1, tokens=10)
    assert [usage_statements.accept(lease, first) for _ in range(2)] == [1, 1]
    second = stated(lease, requests=5, tokens=10)
    assert second.statement.prev_digest == statement_digest(first.statement)
    assert usage_statements.accept(lease, second) == 2
    kept = LeaseStatement.objects.get()
    assert (kept.seq, kept.requests, kept.signer) == (2, 5, lease.node.receipt_address)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": "0x" + "11" * 32}, "another key"),
        ({"lease_id": uuid4()}, "another lease"),
        ({"seq": 3}, "gap"),
        ({"seq": 1}, "is kept"),
        ({"prev_digest": "0x" + "ab" * 32}, "does not follow"),
        ({"requests": 1}, "requests fell"),
    ],
)
def test_statements_that_cannot_be_believed_are_refused(lease: Lease, change: dict[str, Any], why: str) -> None:
    usage_statements.accept(lease, stated(lease, requests=2, tokens=10))
    with pytest.raises(StatementRefused, match=why):
        usage_statements.accept(lease, stated(lease, **{"requests": 3, "tokens": 10, **change}))
    assert LeaseStatement.objects.get().seq == 1


def test_counts_that_match_within_the_tolerance_are_paid(lease: Lease, key: EndpointKey, endpoint: Endpoint) -> None:
    _count(lease, key, endpoint, 100)
    usage_statements.accept(lease, stated(lease, requests=101, tokens=100 * MILLION + 5_000))
    ended = scenes.end(scenes.let_pass(lease, hours=1), hours=1)
    assert not usage_statements.is_contested(ended)
    assert usage_statements.raise_contested_alerts() == 0


def test_lease_lately_busy_is_given_the_time_for_its_statement(
    lease: Lease, key: EndpointKey, endpoint: Endpoint
) -> None:
    usage_statements.accept(lease, stated(lease, requests=0, tokens=0))
    _count(lease, key, endpoint, 100)
    ended = scenes.end(scenes.let_pass(lease, hours=1), hours=1)
    assert not usage_statements.is_contested(ended)
    LeaseStatement.objects.update(received_at=clock.now() + usage_statements.UNDER_WAY)  # it stated that much later
    assert usage_statements.is_contested(ended)


@pytest.mark.parametrize("kept", ["reported", "cut off"])
def test_only_answers_that_the_gateways_saw_without_usage_may_be_left_out(
    lease: Lease, key: EndpointKey, endpoint: Endpoint, kept: str
) -> None:
    _count(lease, key, endpoint, 100, is_reported=kept == "reported")
    usage_statements.accept(lease, stated(lease, requests=100, tokens=0, without_usage=100))
    LeaseStatement.objects.update(received_at=clock.now() + usage_statements.UNDER_WAY)
    ended = scenes.end(scenes.let_pass(lease, hours=1), hours=1)
    assert usage_statements.is_contested(ended) == (kept == "reported")


def test_silence_of_an_agent_is_no_agreement(lease: Lease, key: EndpointKey, endpoint: Endpoint) -> None:
    _count(lease, key, endpoint, 100)
    assert not usage_statements.is_contested(lease)  # its first statement may be under way
    long_ago = clock.now() - usage_statements.SILENCE_MAX - usage_statements.UNDER_WAY
    UsageRecord.objects.update(at=long_ago)
    assert "the agent says 0, the gateways 100" in usage_statements.compare(lease).differs
    assert usage_statements.raise_contested_alerts() == 1


def test_agent_that_fell_silent_agrees_to_nothing_that_came_after(
    lease: Lease, key: EndpointKey, endpoint: Endpoint
) -> None:
    _count(lease, key, endpoint, 100)
    usage_statements.accept(lease, stated(lease, requests=1, tokens=MILLION))
    LeaseStatement.objects.update(received_at=clock.now() - timedelta(hours=3))
    UsageRecord.objects.update(at=clock.now() - timedelta(hours=1))
    assert usage_statements.is_contested(lease)


def test_a_node_that_died_could_not_state_its_last_seconds(lease: Lease, key: EndpointKey, endpoint: Endpoint) -> None:
    _count(lease, key, endpoint, 100)
    ended_at = clock.now() - timedelta(hours=1)
    Lease.objects.filter(pk=lease.pk).update(ended_at=ended_at)
    UsageRecord.objects.update(at=ended_at - timedelta(seconds=20))
    lease.refresh_from_db()
    assert not usage_statements.is_contested(lease)
    UsageRecord.objects.update(at=ended_at - usage_statements.SILENCE_MAX - timedelta(minutes=5))
    assert usage_statements.is_contested(lease), "it was silent long before its end"


def test_second_tries_that_a_caller_asks_for_hold_back_nobodys_pay(
    lease: Lease, key: EndpointKey, endpoint: Endpoint
) -> None:
    _count(lease, key, endpoint, 100)
    UsageRecord.objects.update(at=clock.now() - timedelta(hours=1))
    usage_statements.accept(lease, stated(lease, requests=200, tokens=100 * MILLION, without_usage=100))
    assert not usage_statements.is_contested(lease)
    usage_statements.accept(lease, stated(lease, requests=300, tokens=100 * MILLION, without_usage=100))
    assert usage_statements.is_contested(lease)


def test_prompts_read_again_hold_back_nobodys_pay(lease: Lease, key: EndpointKey, endpoint: Endpoint) -> None:
    """A rival's replica that breaks off its streams has their prompts read again by this one, which no caller pays."""
    moved = [
        scenes.row(seq, key, endpoint, lease_id=lease.pk, part=1, input_tokens=0, is_reported=True)
        for seq in range(1, 101)
    ]
    usage.ingest_usage(scenes.gateway(), moved)
    UsageRecord.objects.update(at=clock.now() - timedelta(hours=1))
    written = LeaseUse.objects.get(pk=lease.pk).output_tokens
    more = stated(lease, requests=100, tokens=0, input_tokens=100 * 30_000, output_tokens=written)
    usage_statements.accept(lease, more)
    assert not usage_statements.is_contested(lease)


def test_pay_of_a_lease_whose_counts_differ_waits_and_both_are_on_the_bill(
    lease: Lease, key: EndpointKey, endpoint: Endpoint, settings: Any
) -> None:
    job = Job.objects.get(pk=endpoint.job_id)
    _count(lease, key, endpoint, 100)
    usage_statements.accept(lease, stated(lease, requests=1000, tokens=900 * MILLION))
    lease = scenes.let_pass(lease, hours=1)
    assert not prepaid_windows.settle_one(job.pk)  # nothing is paid on the way
    assert usage_statements.raise_contested_alerts() == 1
    assert "says 1000, the gateways 100" in Alert.objects.get(kind=usage_statements.ALERT).message
    scenes.end(lease, hours=1)
    settled = settlement.settle_job(job_id=job.pk, charges=payments.final_charges(job), fee_bps=1000)
    assert payments.keep_contested(settled, job) == 1
    assert settlement.release_pending() == 0
    assert SettlementShare.objects.get().is_disputed
    [line] = make_bill(job).lines
    assert line.counts is not None
    assert (line.counts.requests, line.counts.agent_requests) == (100, 1000)
    assert line.counts.differs
    assert_ledger_is_true()
    # The gateways' spool held the rest of it: now they agree.
    LeaseUse.objects.update(requests=1000, input_tokens=900 * MILLION, output_tokens=900 * MILLION)
    assert usage_statements.raise_contested_alerts() == 0
    assert settlement.release_pending() == 1
    assert_ledger_is_true()


def test_bill_of_a_job_settled_in_parts_verifies(lease: Lease, endpoint: Endpoint) -> None:
    for hours in (0.333, 0.777, 1.111):
        lease = scenes.let_pass(lease, hours=hours)
        assert prepaid_windows.settle_one(endpoint.job_id)
        bill = make_bill(Job.objects.get(pk=endpoint.job_id))
        assert verify_bill(bill).problem is None and not bill.is_final
    scenes.end(scenes.let_pass(lease, hours=1.5), hours=1.5)
    job = Job.objects.get(pk=endpoint.job_id)
    settlement.settle_job(job_id=job.pk, charges=payments.final_charges(job), fee_bps=payments.fee_bps(job.pk))
    put_in_state(Job.objects.filter(pk=job.pk), "cancelled")
    bill = make_bill(Job.objects.get(pk=job.pk))
    assert (bill.is_final, len(bill.parts or []), bill.total_units) == (True, 4, 1_500_000)
    assert verify_bill(bill).problem is None
