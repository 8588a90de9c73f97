"""A job waits, the token's price moves, a node comes: at which price it is placed, and what is held then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection

from billing import prices
from billing.account_kinds import AccountKind
from billing.charging import promotions
from billing.errors import PriceUnavailable
from billing.models import Commitment, Hold, PromotionGrant, Settlement
from jobs import lifecycle, sweeps
from jobs.api.job_views import show_job
from jobs.bills import earnings
from jobs.bills.bill import make_bill
from jobs.client.verify.bill import verify_bill, verify_earnings
from jobs.models import Job, Lease, PriceHalt, PriceLock
from jobs.placing import placement
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import charge
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.requotes import scenes
from tests.integration.jobs.requotes.scenes import FUNDS, REQUOTES, START, WETH, has, locks, moved, tick
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def up(usd_micros: int, price: int) -> int:
    return -(-usd_micros * 10**18 // price)


def test_a_young_price_is_kept_wherever_the_market_is(alice: Organisation, bob: Node, settings: Any) -> None:
    settings.SOUK_TOKEN_PRICE_SECONDS = 900
    job = stage.submit(alice, stage.spec_of(**scenes.ASKS))
    tick(START // 2)
    [lease] = stage.place(job)
    assert (lease.price_lock, lease.cap_units, locks(job)) == (None, up(2 * DOLLAR, START), [])


def test_an_old_price_is_looked_at_again(alice: Organisation, bob: Node, settings: Any) -> None:
    settings.SOUK_TOKEN_PRICE_SECONDS = 900
    job = scenes.waiting(alice)
    tick(START // 2)
    assert stage.place(job) == []
    assert "your word on a price" in job.waiting_for


@pytest.mark.parametrize("bps", [-200, -1, 0, 199])
def test_a_small_move_renews_the_lock_and_records_it(alice: Organisation, bob: Node, bps: int) -> None:
    job = scenes.waiting(alice)
    tick(moved(bps) + 1)
    [lease] = stage.place(job)
    assert (lease.rate_units_per_hour, lease.cap_units) == (2 * DOLLAR * 10**18 // START, up(2 * DOLLAR, START))
    assert locks(job) == [(START, "renewed")]
    placed = Event.objects.get(subject_kind="job", subject_id=job.pk, to_state=JobState.PLACED)
    assert (placed.data["price"], placed.data["usd_micros_per_token"]) == ("renewed", str(START))
    scenes.assert_covered(job)


def test_a_renewed_price_is_young_again(alice: Organisation, bob: Node, settings: Any) -> None:
    job = scenes.waiting(alice)
    scenes.run_once(job, ms=60_000)
    settings.SOUK_TOKEN_PRICE_SECONDS = 900
    tick(START // 2)
    assert [lease.price_lock.reason for lease in stage.place(job) if lease.price_lock] == ["renewed"]


def test_of_a_token_that_rose_less_is_held(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice)
    tick(2 * START)
    [lease] = stage.place(job)
    assert locks(job) == [(2 * START, "rose")]
    assert (lease.rate_units_per_hour, lease.cap_units) == (DOLLAR * 10**18 // START, up(DOLLAR, START))
    assert (has(alice), has(alice, AccountKind.JOB_HOLD)) == (FUNDS - up(DOLLAR, START), up(DOLLAR, START))
    assert lease.cap_usd_micros == 2 * DOLLAR


def test_a_token_that_fell_needs_the_customers_word_and_the_job_says_so(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice)
    tick(START // 2)
    assert stage.place(job) == []
    assert job.state == JobState.QUEUED and not Hold.objects.exists()
    assert not Job.objects.uncovered().exists()  # it waits for no contract
    more = up(4 * DOLLAR, START) - up(2 * DOLLAR, START)
    assert "At the new one it holds 0.00064" in job.waiting_for and f"/jobs/{job.pk}/confirm-price" in job.waiting_for
    change = show_job(job).price_change
    assert change is not None and change.can_confirm
    assert (change.locked_usd_micros_per_token, change.usd_micros_per_token) == (START, START // 2)
    assert abs((change.cap_units_after or 0) - change.cap_units - more) < 10**9
    assert change.source == "operator" and change.observed_at is not None


def test_a_job_that_waits_for_a_price_keeps_nobody_from_a_node(alice: Organisation, bob: Node) -> None:
    first = scenes.waiting(alice)
    tick(START // 2)
    second = stage.submit(alice, stage.spec_of(**scenes.ASKS))
    placement.place_waiting()
    assert stage.states_of([first, second]) == ["queued", "placed"]


def test_a_job_file_may_allow_it(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice, **REQUOTES)
    tick(START // 2)
    [lease] = stage.place(job)
    assert locks(job) == [(START // 2, "allowed")]
    assert (lease.cap_units, lease.cap_usd_micros) == (up(2 * DOLLAR, START // 2), 2 * DOLLAR)
    scenes.assert_covered(job)


def test_without_the_money_for_more_an_allowed_job_waits_as_it_was(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice, **REQUOTES)
    tick(DOLLAR)  # two dollars are two WETH now, and she has one
    assert stage.place(job) == []
    assert "does not cover the job's cap" in job.waiting_for
    assert locks(job) == [] and has(alice) == FUNDS


def test_when_the_price_is_back_the_job_goes_on_by_itself(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice)
    tick(START // 2)
    assert stage.place(job) == []
    tick(moved(-150))
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert (job.waiting_for, PriceHalt.objects.count()) == ("", 0)
    [lease] = stage.place(job)
    assert lease.price_lock is not None and lease.price_lock.reason == "renewed"


def test_without_a_known_price_the_job_waits_and_goes_on_when_there_is_one(
    alice: Organisation, bob: Node, settings: Any
) -> None:
    job = scenes.waiting(alice)
    settings.SOUK_PRICE_OPERATOR_AGE_SECONDS_MAX = 0
    with pytest.raises(PriceUnavailable):
        prices.current(WETH)
    assert stage.place(job) == []
    assert job.waiting_for.startswith("the price of WETH")
    change = show_job(job).price_change
    assert change is not None and not change.can_confirm and change.usd_micros_per_token is None
    reason = job.waiting_for
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert job.waiting_for == reason
    settings.SOUK_PRICE_OPERATOR_AGE_SECONDS_MAX = 3600
    sweeps.sweep_jobs()
    assert len(stage.place(job)) == 1


def test_a_running_lease_keeps_its_price_to_its_end(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice)
    [lease] = stage.place(job)
    tick(START // 3)
    sweeps.sweep_jobs()
    placement.place_waiting()
    scenes.run(lease, ms=600_000)
    lease.refresh_from_db()
    assert lease.charge_units == charge(2 * DOLLAR * 10**18 // START, 600_000)


def test_a_job_that_recovers_is_priced_anew_and_pays_each_lease_at_its_price(alice: Organisation, bob: Node) -> None:
    """First at the quote's price, then at twice that, then at the quote's again, which needs no word: to the unit."""
    job = scenes.waiting(alice)
    first = scenes.run_once(job, ms=600_000)
    tick(2 * START)
    second = scenes.run_once(job, ms=600_000)
    scenes.assert_covered(job)
    tick(moved(0))
    [third] = stage.place(job)
    scenes.assert_covered(job)
    assert locks(job) == [(START, "renewed"), (2 * START, "rose"), (START, "agreed")]
    stage.see_running(third, seconds=300)
    stage.bill(third, ms=300_000)
    stage.finish(third)
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    rate = 2 * DOLLAR * 10**18 // START
    due = [charge(rate, 600_000), charge(DOLLAR * 10**18 // START, 600_000), charge(rate, 300_000)]
    assert [int(each.charge_units or 0) for each in Lease.objects.order_by("attempt__number")] == due
    assert (first.charge_usd_micros, second.charge_usd_micros) == (333_333, 333_333)
    settled = Settlement.objects.get(job_id=job.pk)
    assert (settled.charged, settled.held) == (sum(due), settled.charged + settled.refunded)
    assert has(alice) == FUNDS - sum(due) and has(alice, AccountKind.JOB_HOLD) == 0
    assert Commitment.objects.get(job_id=job.pk).charged == 833_332  # three times rounded down
    assert_ledger_is_true()
    bill = make_bill(job)
    assert [line.price.usd_micros_per_token for line in bill.lines if line.price] == [START, 2 * START, START]
    assert bill.prices is not None
    assert [each.reason for each in bill.prices] == ["quoted", "renewed", "rose", "agreed"]
    assert (bill.total_units, bill.total_usd_micros) == (sum(due), 833_332)
    assert verify_bill(bill).problem is None
    for changed in (
        {"prices": bill.prices[:-1]},
        {"prices": [*bill.prices[:-1], bill.prices[-1].model_copy(update={"charged_units": 1})]},
        {"lines": [bill.lines[0].model_copy(update={"price": bill.lines[1].price}), *bill.lines[1:]]},
    ):
        assert verify_bill(bill.model_copy(update=changed)).problem is not None
    earned = earnings.list_earnings(bob.provider.organisation_id, since=None, until=clock.now())
    assert [line.price.usd_micros_per_token for line in earned.lines if line.price] == [START, 2 * START, START]
    assert verify_earnings(earned).problem is None


def test_given_credit_stays_credit_when_less_is_held(alice: Organisation, bob: Node) -> None:
    """All of the hold was drawn from credit; the half that comes back may not be turned into cash."""
    given = up(2 * DOLLAR, START)
    later = clock.now() + timedelta(days=9)
    promotions.grant(alice.id, given, expires_at=later, reference="welcome", actor="operator", asset_id=WETH)
    job = scenes.waiting(alice)
    scenes.run_once(job, ms=60_000)
    assert (has(alice), PromotionGrant.objects.get().left) == (FUNDS, 0)
    tick(2 * START)
    [lease] = stage.place(job)
    assert has(alice) == FUNDS
    assert PromotionGrant.objects.get().left == given - int(Hold.objects.open().get().amount) > 0
    scenes.assert_covered(job)
    lifecycle.cancel(job.pk, actor="alice")
    scenes.run(lease, ms=1000)
    charged = Settlement.objects.get().charged
    assert (has(alice), PromotionGrant.objects.get().left) == (FUNDS, given - charged)
    assert_ledger_is_true()


def test_a_raised_cap_is_held_at_the_price_that_counts(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice)
    scenes.run_once(job, ms=600_000)
    tick(2 * START)
    scenes.run_once(job, ms=600_000)
    lifecycle.resume(job.pk, cap_usd_micros=7 * DOLLAR, actor="alice")
    scenes.assert_covered(job)
    [lease] = stage.place(job)
    assert lease.cap_usd_micros == 7 * DOLLAR - 666_666
    scenes.assert_covered(job)


def test_dollars_have_no_price_to_look_at(transactional_db: None, settings: Any) -> None:
    settings.SOUK_TOKEN_PRICE_SECONDS = 0
    stage.node("bobs-node")
    job = stage.submit(stage.organisation("alice", usd_micros=5 * DOLLAR))
    [lease] = stage.place(job)
    view = show_job(job)
    assert (lease.price_lock, view.prices, view.price_change, PriceLock.objects.count()) == (None, [], None, 0)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_price_that_counted_is_never_changed(alice: Organisation, bob: Node, is_deleted: bool) -> None:
    stage.place(scenes.waiting(alice))
    what = "DELETE FROM jobs_pricelock" if is_deleted else "UPDATE jobs_pricelock SET usd_micros_per_token = 1"
    with pytest.raises(IntegrityError, match="immutable"), connection.cursor() as cursor:
        cursor.execute(what)


def test_the_end_of_a_job_ends_its_question(alice: Organisation, bob: Node) -> None:
    job = scenes.waiting(alice)
    tick(START // 2)
    stage.place(job)
    lifecycle.cancel(job.pk, actor="alice")
    assert not PriceHalt.objects.exists()
    assert Job.objects.get(pk=job.pk).state == JobState.CANCELLED
    assert has(alice) == FUNDS
