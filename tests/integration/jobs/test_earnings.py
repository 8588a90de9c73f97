"""What a node has earned: after the fee, by day, of its own leases only."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from billing.models import SettlementShare
from jobs.bills.earnings import earned_by
from jobs.models import Lease
from provider_agent.protocol import AttemptState, Earnings, sign_request
from tests import stage
from tests.integration.jobs.conftest import node_with_key, transport_key

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]


def ask(node) -> Earnings:
    path = "/api/agent/v1/earnings"
    headers = sign_request(transport_key(node.name), node.id, "GET", path, int(time.time() * 1000), b"")
    answer = Client().get(path, headers=headers)
    assert answer.status_code == 200, answer.content
    return Earnings.model_validate_json(answer.content)


def test_open_pay_becomes_todays_and_equals_what_is_settled(alice, bob, lease) -> None:
    stage.see_running(lease, seconds=61.7)
    stage.bill(lease, ms=60_001)
    live = ask(bob)
    assert (live.open_leases, live.today_usd_micros) == (1, 0)
    assert live.open_usd_micros > 0
    stage.finish(Lease.objects.select_related("attempt", "node").get(pk=lease.pk))
    done = ask(bob)
    paid = SettlementShare.objects.get().paid
    assert (done.open_usd_micros, done.today_usd_micros, done.week_usd_micros) == (0, paid, paid)
    assert live.open_usd_micros == paid
    assert (done.today_leases, done.open_leases, done.fee_bps) == (1, 0, 1000)


def test_yesterday_counts_in_the_week_and_last_week_nowhere(alice, bob, lease) -> None:
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=60_000)
    stage.finish(Lease.objects.select_related("attempt", "node").get(pk=lease.pk))
    whole = earned_by(bob).today_usd_micros
    assert whole > 0
    Lease.objects.update(ended_at=timezone.now() - timedelta(days=1))
    assert (earned_by(bob).today_usd_micros, earned_by(bob).week_usd_micros) == (0, whole)
    Lease.objects.update(ended_at=timezone.now() - timedelta(days=8))
    assert earned_by(bob).week_usd_micros == 0


def test_mallory_sees_nothing_of_bobs(alice, bob, lease) -> None:
    stage.send_report(lease, AttemptState.RUNNING)
    mallory = node_with_key("mallorys-node")
    assert ask(mallory) == Earnings(
        today_usd_micros=0,
        week_usd_micros=0,
        open_usd_micros=0,
        today_leases=0,
        week_leases=0,
        open_leases=0,
        fee_bps=1000,
    )
    path = "/api/agent/v1/earnings"
    headers = sign_request(transport_key("mallorys-node"), bob.id, "GET", path, int(time.time() * 1000), b"")
    assert Client().get(path, headers=headers).status_code == 401
