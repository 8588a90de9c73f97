"""The money of a serving job: a window of it, settled in parts, never more than is set aside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.balances import balance
from billing.charging import promotions, settlement
from billing.contesting import disputes
from billing.errors import InsufficientFunds
from billing.models import Alert, Hold, Settlement, SettlementShare
from jobs import lifecycle
from jobs.endpoints import amounts, payments
from jobs.models import Endpoint, Job, Lease
from jobs.serving import prepaid_windows
from jobs.spec import from_wire
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.serving import scenes
from tests.integration.racing import race
from tests.row_states import put_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def endpoint(alice: Organisation) -> Endpoint:
    return scenes.endpoint(alice)


@pytest.fixture
def job(endpoint: Endpoint) -> Job:
    payments.open_window(endpoint.job)
    return endpoint.job


@pytest.fixture
def lease(job: Job, endpoint: Endpoint, bob: Node) -> Lease:
    return scenes.run(job, endpoint, bob)


@pytest.fixture(autouse=True)
def _days_to_challenge(settings: Any) -> None:
    settings.SOUK_CHALLENGE_SECONDS = 86_400


def _available(owner: Organisation) -> int:
    return balance(owner.id, AccountKind.CUSTOMER_AVAILABLE)


def _pending(lease: Lease) -> int:
    return balance(lease.node.provider.organisation_id, AccountKind.PROVIDER_PENDING)


def _finish(job: Job) -> Settlement:
    with transaction.atomic():
        settled = payments.settle_rest(job)
    assert settled is not None
    return settled


def test_window_is_two_hours_at_the_ceiling_of_all_replicas_and_at_most_the_cap(alice: Organisation) -> None:
    job = scenes.serving_job(alice, replicas=3)
    assert payments.open_window(job) == payments.open_window(job) == 6 * DOLLAR == amounts.held_units(job)
    assert _available(alice) == 44 * DOLLAR
    small = scenes.serving_job(alice, cap=DOLLAR // 2)
    assert payments.open_window(small) == DOLLAR // 2


def test_submit_says_how_much_of_the_window_is_missing_not_of_the_cap(alice: Organisation) -> None:
    poor = stage.organisation("poor", usd_micros=DOLLAR)
    job = scenes.serving_job(poor)  # a cap of 20 dollars, a window of two
    with pytest.raises(payments.NotEnoughForWindow) as refused:
        payments.require_window(poor, job.quote, from_wire(job.spec))
    assert refused.value.details["missing_usd_micros"] == DOLLAR
    assert (refused.value.status, refused.value.code) == (402, "not_enough_money")
    payments.require_window(alice, scenes.serving_job(alice).quote, from_wire(job.spec))
    with pytest.raises(InsufficientFunds):
        payments.open_window(job)


def test_window_is_moved_on_when_half_of_it_is_used(job: Job, lease: Lease, alice: Organisation) -> None:
    scenes.let_pass(lease, hours=0.5)
    assert prepaid_windows.refill_window(job.pk) and amounts.held_units(job) == 2 * DOLLAR
    scenes.let_pass(lease, hours=1.5)
    assert prepaid_windows.refill_windows() == 0
    used = amounts.unsettled_units(job)
    assert amounts.held_units(job) == pytest.approx(used + 2 * DOLLAR, abs=10)
    assert_ledger_is_true()


def test_window_never_grows_beyond_the_cap_and_the_leases_stop_in_time(
    alice: Organisation, bob: Node, endpoint: Endpoint
) -> None:
    Job.objects.filter(pk=endpoint.job_id).update(cap_usd_micros=3 * DOLLAR)
    job = Job.objects.get(pk=endpoint.job_id)
    payments.open_window(job)
    lease = scenes.run(job, endpoint, bob)
    scenes.let_pass(lease, hours=1.5)
    assert prepaid_windows.refill_window(job.pk) and amounts.held_units(job) == 3 * DOLLAR
    scenes.let_pass(lease, hours=2.95)
    assert not prepaid_windows.refill_window(job.pk)
    lease.refresh_from_db()
    assert lease.stop_reason == "budget_exhausted"
    assert amounts.used_units(lease) < amounts.held_units(job)


def test_owner_without_money_is_notified_once_and_the_endpoint_is_drained_in_time(
    bob: Node,
) -> None:
    poor = stage.organisation("poor", usd_micros=5 * DOLLAR // 2)
    endpoint = scenes.endpoint(poor)
    payments.open_window(endpoint.job)
    lease = scenes.run(endpoint.job, endpoint, bob)
    scenes.let_pass(lease, hours=1.5)
    assert prepaid_windows.refill_window(endpoint.job_id) and prepaid_windows.refill_window(endpoint.job_id)
    assert amounts.held_units(endpoint.job) == 5 * DOLLAR // 2  # what there was
    mails = OutboxMessage.objects.filter(kind="billing.mail")
    assert [each.payload["subject"] for each in mails] == ["Your endpoint will run out of money: chat"]
    scenes.let_pass(lease, hours=2.45)
    assert not prepaid_windows.refill_window(endpoint.job_id) and prepaid_windows.refill_window(endpoint.job_id)
    lease.refresh_from_db()
    assert lease.stop_reason == "budget_exhausted"
    # with money it goes on
    scenes.end(scenes.let_pass(lease, hours=2.46), hours=2.46)
    with pytest.raises(payments.NotEnoughForWindow):
        payments.resume_window(endpoint.job)
    deposits.credit(poor.id, 10 * DOLLAR, reference="more", actor="operator")
    put_in_state(Job.objects.filter(pk=endpoint.job_id), "paused")
    assert prepaid_windows.refill_window(endpoint.job_id) and amounts.held_units(endpoint.job) == 5 * DOLLAR // 2
    with transaction.atomic():
        assert payments.resume_window(lifecycle.lock(endpoint.job_id)) == pytest.approx(4_460_000)
    assert_ledger_is_true()


def test_leases_are_settled_in_parts_that_add_up_to_the_last_unit(alice: Organisation, job: Job, lease: Lease) -> None:
    scenes.let_pass(lease, hours=1)
    assert prepaid_windows.settle_one(job.pk)
    assert not prepaid_windows.settle_one(job.pk)
    assert amounts.held_units(job) == DOLLAR and _pending(lease) == 900_000
    assert_ledger_is_true()
    scenes.let_pass(lease, hours=1.7)
    assert prepaid_windows.settle_one(job.pk)
    ended = scenes.end(scenes.let_pass(lease, hours=1.8), hours=1.8)
    final = _finish(job)
    assert ended.charge_units == 1_800_000 == amounts.settled_units(job)
    assert (final.is_final, final.charged, final.refunded) == (True, 100_000, 200_000)
    assert [each.is_final for each in Settlement.objects.order_by("created_at")] == [False, False, True]
    assert _pending(lease) == 1_620_000
    assert _available(alice) == 50 * DOLLAR - 1_800_000
    assert not Hold.objects.open().exists()
    assert_ledger_is_true()
    with pytest.raises(Exception, match="settled"):
        payments.open_window(job)


@hypothesis_settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.integers(1, 999_983), max_size=5), rate=st.integers(1, 3_000_017))
def test_fees_are_rounded_down_once_whatever_the_parts(alice: Organisation, parts: list[int], rate: int) -> None:
    job, lease_id, provider = scenes.serving_job(alice), uuid4(), uuid4()
    deposits.credit(alice.id, 20 * DOLLAR, reference=f"for {job.pk}", actor="operator")
    payments.open_window(job)
    payments.extend_window(job, 5 * DOLLAR)
    before = 0
    for part in parts:
        charge = settlement.LeaseCharge(lease_id, provider, part, before)
        settlement.settle_part(job_id=job.pk, charges=[charge], fee_bps=777)
        before += part
    last = settlement.LeaseCharge(lease_id, provider, rate % 1000 + 1, before)
    settlement.settle_job(job_id=job.pk, charges=[last], fee_bps=777)
    total = before + last.amount
    shares = SettlementShare.objects.filter(lease_id=lease_id)
    assert sum(int(each.fee) for each in shares) == total * 777 // 10_000
    assert sum(int(each.charged) for each in shares) == total
    assert_ledger_is_true()


def test_part_pays_only_what_gateways_saw_as_ready(job: Job, lease: Lease) -> None:
    scenes.let_pass(lease, hours=1, ready=0.25)
    assert prepaid_windows.settle_one(job.pk)
    assert amounts.settled_units(job) == 250_000


def test_days_pass_before_the_next_part(job: Job, lease: Lease) -> None:
    scenes.let_pass(lease, hours=1)
    assert prepaid_windows.settle_due() == 0
    Job.objects.filter(pk=job.pk).update(running_at=clock.now() - timedelta(days=2))
    assert prepaid_windows.settle_due() == 1
    scenes.let_pass(lease, hours=1.1)
    assert prepaid_windows.settle_due() == 0
    assert prepaid_windows.settle_due(clock.now() + timedelta(hours=25)) == 1


def test_two_who_settle_a_part_at_once_pay_once(job: Job, lease: Lease) -> None:
    scenes.let_pass(lease, hours=1)
    results = race(*[lambda: prepaid_windows.settle_one(job.pk)] * 4)
    assert sorted(map(str, results)) == ["False", "False", "False", "True"]
    assert amounts.settled_units(job) == DOLLAR
    assert_ledger_is_true()


def test_lease_is_never_charged_more_than_is_set_aside_and_an_alert_is_raised(job: Job, lease: Lease) -> None:
    scenes.let_pass(lease, hours=1)
    prepaid_windows.settle_one(job.pk)
    ended = scenes.end(scenes.let_pass(lease, hours=5), hours=5)  # nobody stopped it in time
    assert ended.charge_units == 2 * DOLLAR
    assert Alert.objects.get(kind=payments.OVERRUN_ALERT).subject == str(lease.pk)
    assert _finish(job).refunded == 0
    assert_ledger_is_true()


def test_lease_is_never_charged_less_than_was_settled(job: Job, lease: Lease) -> None:
    scenes.let_pass(lease, hours=1)
    prepaid_windows.settle_one(job.pk)
    assert scenes.end(lease, hours=0).charge_units == DOLLAR


def test_caps_of_live_leases_never_add_up_to_more_than_the_jobs(
    alice: Organisation, endpoint: Endpoint, job: Job
) -> None:
    caps = []
    for index in range(3):
        cap = payments.lease_cap(job, DOLLAR, replicas_max=3)
        scenes.run(job, endpoint, stage.node(f"node-{index}"), cap=cap)
        caps.append(cap)
    assert sum(caps) <= job.cap_usd_micros and min(caps) > 0
    assert payments.lease_cap(job, DOLLAR, replicas_max=3) <= job.cap_usd_micros - sum(caps)


def test_each_part_can_be_contested_in_its_window(alice: Organisation, job: Job, lease: Lease) -> None:
    for hours in (0.5, 1):
        scenes.let_pass(lease, hours=hours)
        prepaid_windows.settle_one(job.pk)
    first = disputes.open_dispute(customer_id=alice.id, lease_id=lease.pk, text="slow", actor="alice")
    second = disputes.open_dispute(customer_id=alice.id, lease_id=lease.pk, text="slow", actor="alice")
    assert first.share_id != second.share_id
    assert first.share.settlement.created_at > second.share.settlement.created_at
    disputes.decide(first.pk, to_customer=first.amount, to_provider=0, to_platform=0, text="", actor="op")
    disputes.withdraw(second.pk, customer_id=alice.id, actor="alice")
    assert_ledger_is_true()


def test_given_credit_is_spent_first_and_comes_back_as_credit(bob: Node) -> None:
    dave = stage.organisation("dave", usd_micros=5 * DOLLAR)
    promotions.grant(
        dave.id, 3 * DOLLAR, expires_at=clock.now() + timedelta(days=30), reference="welcome", actor="operator"
    )
    endpoint = scenes.endpoint(dave)
    job = endpoint.job
    payments.open_window(job)
    lease = scenes.run(job, endpoint, bob)
    scenes.let_pass(lease, hours=1)
    prepaid_windows.settle_one(job.pk)
    dispute = disputes.open_dispute(customer_id=dave.id, lease_id=lease.pk, text="slow", actor="dave")
    disputes.decide(dispute.pk, to_customer=dispute.amount, to_provider=0, to_platform=0, text="", actor="op")
    assert_ledger_is_true()
    scenes.end(scenes.let_pass(lease, hours=1.5), hours=1.5)
    _finish(job)
    promotions.return_refunded(job.pk)
    assert _available(dave) == 5 * DOLLAR
    assert promotions.spendable(dave.id) == 3 * DOLLAR - 500_000
    assert ledger.verify().problems == []
