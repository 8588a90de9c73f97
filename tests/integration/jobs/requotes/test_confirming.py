"""Alice's word on a lower price of her token: what it does once, twice, too late, and for whom."""

from __future__ import annotations

from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.models import Hold
from jobs import lifecycle, sweeps
from jobs.errors import JobEnded, NotEnoughMoney, PriceMoved, PriceNotAsked
from jobs.models import Job, PriceHalt
from jobs.placing import requotes
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.api.api_clients import client_of, post
from tests.integration.jobs.requotes import scenes
from tests.integration.jobs.requotes.scenes import FUNDS, START, has, locks, moved, tick
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

HALF = START // 2


@pytest.fixture
def asked(alice: Organisation, bob: Node) -> Job:
    """It never ran, and waits for Alice's word on half the price."""
    job = scenes.waiting(alice)
    tick(HALF)
    assert stage.place(job) == []
    return job


@pytest.fixture
def asked_again(alice: Organisation, bob: Node) -> Job:
    """It ran, money is held for it, and it waits for her word."""
    job = scenes.waiting(alice)
    scenes.run_once(job, ms=600_000)
    tick(HALF)
    assert stage.place(job) != [] and job.state == JobState.RECOVERING
    return job


def test_a_confirmed_job_is_placed_at_the_new_price_for_the_same_dollars(asked: Job) -> None:
    requotes.confirm(asked.pk, usd_micros_per_token=HALF, actor="alice")
    [lease] = stage.place(asked)
    assert locks(asked)[0] == (HALF, "confirmed")
    assert lease.cap_usd_micros == 2 * DOLLAR
    assert int(Hold.objects.open().get().amount) == -(-2 * DOLLAR * 10**18 // HALF)
    scenes.assert_covered(asked)


def test_a_hold_grows_with_the_word_and_covers_what_ran_before(alice: Organisation, asked_again: Job) -> None:
    before = has(alice, AccountKind.JOB_HOLD)
    scenes.assert_covered(asked_again)
    requotes.confirm(asked_again.pk, usd_micros_per_token=HALF, actor="alice")
    scenes.assert_covered(asked_again)
    assert has(alice, AccountKind.JOB_HOLD) > before
    assert has(alice) + has(alice, AccountKind.JOB_HOLD) == FUNDS
    assert asked_again.pk and stage.place(asked_again)[0].attempt.number == 2
    assert_ledger_is_true()


def test_a_repeated_word_changes_nothing(alice: Organisation, asked_again: Job) -> None:
    for _ in range(3):
        requotes.confirm(asked_again.pk, usd_micros_per_token=HALF, actor="alice")
    assert locks(asked_again)[-1] == (HALF, "confirmed") and len(locks(asked_again)) == 2
    stage.place(asked_again)
    held = has(alice, AccountKind.JOB_HOLD)
    assert requotes.confirm(asked_again.pk, usd_micros_per_token=HALF, actor="alice").state == JobState.PLACED
    assert has(alice, AccountKind.JOB_HOLD) == held


def test_what_was_confirmed_once_is_agreed_to_from_then_on(asked_again: Job) -> None:
    requotes.confirm(asked_again.pk, usd_micros_per_token=HALF, actor="alice")
    tick(START)
    scenes.run_once(asked_again, ms=60_000)
    tick(moved(-4000))
    scenes.run_once(asked_again, ms=60_000)
    scenes.assert_covered(asked_again)
    assert [reason for _, reason in locks(asked_again)] == ["renewed", "confirmed", "rose", "agreed"]


def test_the_word_is_on_what_was_asked_and_on_nothing_else(asked: Job) -> None:
    for wrong in (HALF + 1, HALF - 1, HALF * 101 // 100, 1, START):
        with pytest.raises(PriceMoved) as refused:
            requotes.confirm(asked.pk, usd_micros_per_token=wrong, actor="mallory")
        assert refused.value.details["asked_usd_micros_per_token"] == str(HALF)
    assert locks(asked) == []


def test_a_price_that_fell_on_is_asked_anew_and_the_old_word_is_refused(asked: Job) -> None:
    tick(START // 3)
    with pytest.raises(PriceMoved) as refused:
        requotes.confirm(asked.pk, usd_micros_per_token=HALF, actor="alice")
    assert refused.value.details["asked_usd_micros_per_token"] == str(START // 3)
    sweeps.sweep_jobs()
    requotes.confirm(asked.pk, usd_micros_per_token=START // 3, actor="alice")
    assert locks(asked) == [(START // 3, "confirmed")]


def test_a_price_that_wavers_a_little_is_still_the_one_that_was_asked(asked: Job) -> None:
    tick(HALF * 9_850 // 10_000)
    sweeps.sweep_jobs()
    assert PriceHalt.objects.get().usd_micros_per_token == HALF
    requotes.confirm(asked.pk, usd_micros_per_token=HALF, actor="alice")
    assert locks(asked) == [(HALF, "confirmed")]


def test_a_price_that_rose_meanwhile_is_hers(asked: Job) -> None:
    better = HALF * 10_150 // 10_000
    tick(better)
    requotes.confirm(asked.pk, usd_micros_per_token=HALF, actor="alice")
    assert locks(asked) == [(better, "confirmed")]


def test_her_word_costs_nothing_where_the_price_is_back(asked: Job) -> None:
    tick(START)
    requotes.confirm(asked.pk, usd_micros_per_token=HALF, actor="alice")
    assert locks(asked) == [] and not PriceHalt.objects.exists()
    assert len(stage.place(asked)) == 1


def test_who_has_too_little_for_it_learns_how_much_and_nothing_changes(alice: Organisation, asked_again: Job) -> None:
    tick(DOLLAR)  # what is left of two dollars is more than one WETH now
    sweeps.sweep_jobs()
    held = has(alice, AccountKind.JOB_HOLD)
    with pytest.raises(NotEnoughMoney) as refused:
        requotes.confirm(asked_again.pk, usd_micros_per_token=DOLLAR, actor="alice")
    assert int(refused.value.details["missing_units"]) > 0
    assert has(alice, AccountKind.JOB_HOLD) == held and len(locks(asked_again)) == 1
    scenes.assert_covered(asked_again)


def test_nobody_is_asked_twice_too_late_or_for_nothing(alice: Organisation, bob: Node, asked: Job) -> None:
    other = stage.submit(alice, stage.spec_of(**scenes.ASKS))
    with pytest.raises(PriceNotAsked):
        requotes.confirm(other.pk, usd_micros_per_token=HALF, actor="alice")
    lifecycle.cancel(asked.pk, actor="alice")
    with pytest.raises(JobEnded):
        requotes.confirm(asked.pk, usd_micros_per_token=HALF, actor="alice")
    assert Job.objects.get(pk=asked.pk).state == JobState.CANCELLED and not Hold.objects.exists()


def test_by_the_api_it_is_the_customers_own_and_safe_to_repeat(alice: Organisation, asked: Job) -> None:
    client, key = client_of(alice), str(uuid4())
    shown = client.get(f"/api/v1/jobs/{asked.pk}").json()["price_change"]
    assert shown["usd_micros_per_token"] == str(HALF) and shown["can_confirm"] is True
    body, path = {"usd_micros_per_token": shown["usd_micros_per_token"]}, f"/jobs/{asked.pk}/confirm-price"
    assert post(client_of(stage.organisation("mallory")), path, body).status_code == 404
    assert post(client_of(alice, ["jobs:read"]), path, body).status_code == 403
    for wrong in ({}, {"usd_micros_per_token": "0"}, {"usd_micros_per_token": str(2**256)}, {**body, "cap": 1}):
        assert post(client, path, wrong).status_code == 400
    refused = post(client, path, {"usd_micros_per_token": "5"})
    assert (refused.status_code, refused.json()["code"]) == (409, "price_moved")
    for _ in range(2):
        answer = post(client, path, body, key=key)
        assert (answer.status_code, answer.json()["price_change"]) == (200, None)
        assert [each["reason"] for each in answer.json()["prices"]] == ["quoted", "confirmed"]
    assert locks(asked)[0] == (HALF, "confirmed")
