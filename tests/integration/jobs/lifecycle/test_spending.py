"""What a job's way does to limits, given credit and the record of its end."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.balances import balance
from billing.charging import limits, promotions
from billing.errors import SpendLimitReached
from billing.models import Commitment, EndRecord
from jobs import lifecycle
from jobs.errors import TooManyWaiting
from jobs.leases.leasing import GRACE_MS
from jobs.models import Job
from jobs.quoting import quotes
from jobs.running import reports
from marketplace.accounts.models import Membership, Role, User
from marketplace.config.checks import check_limits
from marketplace.foundation import clock
from provider_agent.protocol import Reason, charge
from tests import stage
from tests.integration.jobs.api.api_clients import client_of, post
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def limit(alice, amount, period="month"):
    limits.set_limit(alice.id, member_id=None, period=period, amount=amount, actor="op@example.org")


def give(alice, amount):
    expires_at = clock.now() + timedelta(days=9)
    promotions.grant(alice.id, amount, expires_at=expires_at, reference="welcome", actor="op@example.org")


def test_a_job_beyond_the_limit_is_not_submitted(alice, bob):
    limit(alice, 3 * DOLLAR)
    stage.submit(alice)  # two dollars
    with pytest.raises(SpendLimitReached):
        stage.submit(alice)
    assert Job.objects.count() == Commitment.objects.count() == 1


def test_no_more_jobs_wait_than_an_organisation_may_have_waiting(alice, bob, settings):
    settings.SOUK_WAITING_JOBS_MAX = 2
    first, _ = stage.submit(alice), stage.submit(alice)
    with pytest.raises(TooManyWaiting):
        stage.submit(alice)
    stage.submit(stage.organisation("carol", usd_micros=5 * DOLLAR))
    lifecycle.cancel(first.id, actor="alice")
    stage.submit(alice)
    assert Job.objects.waiting().filter(organisation=alice).count() == 2


def test_a_limit_that_refuses_everything_is_found_at_the_start(settings):
    assert check_limits(None) == []
    settings.SOUK_WAITING_JOBS_MAX, settings.SOUK_STORAGE_FILES_MAX = -1, 0
    assert [found.id for found in check_limits(None)] == ["souk.E016"] * 2


def test_a_raised_cap_beyond_the_limit_is_refused_and_nothing_is_held(alice, bob):
    limit(alice, 3 * DOLLAR)
    job, (lease,) = stage.running_job(alice)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    with pytest.raises(SpendLimitReached):
        lifecycle.resume(job.id, cap_usd_micros=4 * DOLLAR, actor="alice")
    job.refresh_from_db()
    assert job.cap_usd_micros == 2 * DOLLAR == balance(alice.id, AccountKind.JOB_HOLD)


def test_retry_counts_against_the_member_who_asks_for_it_and_not_the_launcher(alice, bob):
    job = stage.submit(alice)  # two dollars, by the owner, who is the only member yet
    erin = User.objects.create_user("erin@example.org")
    Membership.objects.create(organisation=alice, user=erin, role=Role.MEMBER)
    limits.set_limit(alice.id, member_id=erin.pk, period="month", amount=DOLLAR, actor="alice")
    lifecycle.cancel(job.id, actor="alice")
    client = client_of(alice, ("jobs:read", "jobs:write"), user=erin)
    refused = post(client, f"/jobs/{job.id}/retry", key=str(uuid4()))
    assert (refused.status_code, refused.json()["code"]) == (402, "spend_limit_reached")
    limits.set_limit(alice.id, member_id=erin.pk, period="month", amount=3 * DOLLAR, actor="alice")
    again = post(client, f"/jobs/{job.id}/retry", key=str(uuid4()))
    assert again.status_code == 201
    assert Commitment.objects.get(job_id=again.json()["job_id"]).member_id == erin.pk
    assert Job.objects.get(pk=again.json()["job_id"]).submitted_by == erin


def test_a_member_raises_a_colleagues_cap_only_within_their_own_limit(alice, bob):
    job, (lease,) = stage.running_job(alice)  # two dollars, by the owner
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    erin = User.objects.create_user("erin@example.org")
    Membership.objects.create(organisation=alice, user=erin, role=Role.MEMBER)
    limits.set_limit(alice.id, member_id=erin.pk, period="month", amount=0, actor="alice")
    client = client_of(alice, ("jobs:read", "jobs:write"), user=erin)
    body = {"max_total_usd_micros": 3 * DOLLAR}
    refused = post(client, f"/jobs/{job.id}/resume", body, key=str(uuid4()))
    assert (refused.status_code, refused.json()["code"]) == (402, "spend_limit_reached")
    job.refresh_from_db()
    assert job.cap_usd_micros == 2 * DOLLAR
    limits.set_limit(alice.id, member_id=erin.pk, period="month", amount=3 * DOLLAR, actor="alice")
    assert post(client, f"/jobs/{job.id}/resume", body, key=str(uuid4())).status_code == 200
    assert (Commitment.objects.get().member_id, limits.standings(alice.id, erin.pk)[0].left) == (erin.pk, 0)


def test_an_ended_job_counts_with_what_it_cost_and_a_cancelled_one_with_nothing(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    stage.finish(lease)
    cost = Commitment.objects.get(job_id=job.id).charged
    assert 0 < cost == lease.rate_usd_micros_per_hour // 6
    other = stage.submit(alice)
    lifecycle.cancel(other.id, actor="alice")
    assert Commitment.objects.get(job_id=other.id).charged == 0


def test_given_credit_pays_a_job_without_money_and_returns_when_it_is_cancelled(bob):
    erin = stage.organisation("erin")
    give(erin, 3 * DOLLAR)
    assert quotes.make_quote(stage.spec_of(), erin).balance_units == 3 * DOLLAR
    job = stage.submit(erin)
    stage.place(job)
    assert (promotions.spendable(erin.id), balance(erin.id, AccountKind.JOB_HOLD)) == (DOLLAR, 2 * DOLLAR)
    job.refresh_from_db()
    lifecycle.end_job(job, "cancelled", Reason.CANCELLED_BY_CUSTOMER)
    assert (promotions.spendable(erin.id), balance(erin.id, AccountKind.CUSTOMER_AVAILABLE)) == (3 * DOLLAR, 0)
    assert ledger.verify().problems == []


def test_no_more_is_charged_than_was_observed(alice, bob):
    _, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    stage.see_running(lease, seconds=60)  # as if the server's own clock had been set right since
    stage.finish(lease)
    end = EndRecord.objects.get(lease_id=lease.id)
    assert (end.claimed_ms, end.billable_ms) == (600_000, end.observed_ms + GRACE_MS)
    assert end.charged == charge(lease.rate_units_per_hour, end.billable_ms)


def test_every_end_leaves_its_facts(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=400_000)
    stage.checkpoint(job, lease, step=80, ms=300_000)
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    end = EndRecord.objects.get(lease_id=lease.id)
    lease.refresh_from_db()
    assert (end.reason, end.fault, end.message) == ("node_silent", "provider", "gone")
    assert (end.claimed_ms, end.checkpointed_ms, end.billable_ms) == (400_000, 300_000, 300_000)
    assert (end.observed_ms, end.charged, end.receipt_seq) == (lease.observed_ms, lease.charge_units, 1)
    assert (end.customer_id, end.provider_id) == (alice.id, lease.node.provider.organisation_id)
    assert end.receipt_digest.startswith("0x")
