"""Two at once, each on a connection of its own: Alice's word, her cancel, a placement, a tick of the price."""

from __future__ import annotations

import pytest

from billing.account_kinds import AccountKind
from billing.models import Hold, Settlement
from jobs import lifecycle
from jobs.errors import JobEnded
from jobs.models import Job, Lease, PriceHalt
from jobs.placing import placement, requotes
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.placements import placement_for
from tests.integration.jobs.requotes import scenes
from tests.integration.jobs.requotes.scenes import FUNDS, REQUOTES, START, has, locks, tick
from tests.integration.racing import race

pytestmark = pytest.mark.django_db(transaction=True)

HALF = START // 2
TRIES = 3


@pytest.fixture
def asked(alice: Organisation, bob: Node) -> Job:
    job = scenes.waiting(alice)
    scenes.run_once(job, ms=600_000)
    tick(HALF)
    stage.place(job)
    assert PriceHalt.objects.filter(job=job).exists()
    return job


def confirm(job: Job) -> object:
    return requotes.confirm(job.pk, usd_micros_per_token=HALF, actor="alice")


@pytest.mark.parametrize("attempt", range(TRIES))
def test_a_word_against_a_cancel_ends_the_job_and_gives_all_back(alice: Organisation, asked: Job, attempt: int) -> None:
    confirmed, cancelled = race(lambda: confirm(asked), lambda: lifecycle.cancel(asked.pk, actor="alice"))
    assert isinstance(cancelled, Job) and (isinstance(confirmed, (Job, JobEnded)))
    assert Job.objects.get(pk=asked.pk).state == JobState.CANCELLED
    charged = Settlement.objects.get(job_id=asked.pk).charged
    assert (has(alice), has(alice, AccountKind.JOB_HOLD)) == (FUNDS - charged, 0)
    assert not PriceHalt.objects.exists()
    assert_ledger_is_true()


@pytest.mark.parametrize("attempt", range(TRIES))
def test_a_confirmation_sent_four_times_at_once_counts_once(alice: Organisation, asked: Job, attempt: int) -> None:
    results = race(*[lambda: confirm(asked)] * 4)
    assert all(isinstance(each, Job) for each in results)
    assert [reason for _, reason in locks(asked)] == ["renewed", "confirmed"]
    scenes.assert_covered(asked)
    assert has(alice) + has(alice, AccountKind.JOB_HOLD) == FUNDS
    assert_ledger_is_true()


@pytest.mark.parametrize("price", [2 * START, HALF, START // 3])
def test_a_placement_against_a_tick_is_at_one_price_or_the_other_and_covered(
    alice: Organisation, bob: Node, price: int
) -> None:
    job = scenes.waiting(alice, **REQUOTES)
    scenes.run_once(job, ms=600_000)
    slot = placement_for(job)
    placed, _ = race(lambda: placement.place_job(job.pk, slot), lambda: tick(price))
    assert placed is True
    [lease] = Lease.objects.live()
    assert lease.price_lock is not None and int(lease.price_lock.usd_micros_per_token) in {START, price}
    scenes.assert_covered(job)
    assert has(alice) + has(alice, AccountKind.JOB_HOLD) == FUNDS
    assert_ledger_is_true()


def test_a_placement_against_a_fall_nobody_allowed_asks_or_places_at_the_old_price(
    alice: Organisation, bob: Node
) -> None:
    job = scenes.waiting(alice)
    slot = placement_for(job)
    placed, _ = race(lambda: placement.place_job(job.pk, slot), lambda: tick(HALF))
    assert placed is not PriceHalt.objects.filter(job=job).exists()
    assert all(
        int(lease.price_lock.usd_micros_per_token) == START for lease in Lease.objects.live() if lease.price_lock
    )
    scenes.assert_covered(job)


@pytest.mark.parametrize("attempt", range(TRIES))
def test_a_word_against_a_placement_and_a_sweep_leaves_one_covered_lease(asked: Job, attempt: int) -> None:
    slot = placement_for(asked)
    results = race(
        lambda: confirm(asked), lambda: placement.place_job(asked.pk, slot), lambda: requotes.follow(asked.pk)
    )
    assert isinstance(results[0], Job)
    placement.place_waiting()
    assert Lease.objects.live().count() == 1 and Hold.objects.open().count() == 1
    scenes.assert_covered(asked)
    assert_ledger_is_true()


def test_the_last_token_goes_to_one_of_two_words(alice: Organisation, weth: object) -> None:
    """Two jobs wait for a confirmation; the balance covers one of them at the new price."""
    for name in ("one", "two"):
        scenes.node(name)
    jobs = [scenes.waiting(alice) for _ in range(2)]
    for job, lease in zip(jobs, [stage.place(job)[0] for job in jobs], strict=True):
        scenes.run(lease, ms=1000)
        job.refresh_from_db()
    price = 3 * 10**6  # the two dollars of one are two thirds of a WETH
    tick(price)
    placement.place_waiting()
    results = race(
        *[lambda job=job: requotes.confirm(job.pk, usd_micros_per_token=price, actor="alice") for job in jobs]
    )
    assert sorted(isinstance(each, Job) for each in results) == [False, True]
    for job in jobs:
        scenes.assert_covered(job)
    assert has(alice) + has(alice, AccountKind.JOB_HOLD) == FUNDS
    assert_ledger_is_true()
