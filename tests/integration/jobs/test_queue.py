"""Nobody stops the queue: jobs that fit nowhere, jobs without money, many jobs of one organisation."""

from __future__ import annotations

from typing import Any

import pytest

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.models import Account
from jobs import lifecycle
from jobs.models import Job
from jobs.placing import funding, placement
from jobs.pricing import price_locks
from marketplace.nodes.models import Offer
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)
ONE: dict[str, Any] = {"resources": {"gpus": 1, "kind": "any"}}
SEVEN: dict[str, Any] = {"resources": {"gpus": 7, "kind": "any"}}
LARGE: dict[str, Any] = {"resources": {"gpus": 8, "kind": "any"}}


@pytest.fixture(autouse=True)
def short_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 3 were 500."""
    monkeypatch.setattr(placement, "BATCH_MAX", 3)


@pytest.fixture
def mallory() -> Any:
    return stage.organisation("mallory", usd_micros=100 * DOLLAR)


@pytest.fixture
def alice() -> Any:
    return stage.organisation("alice", usd_micros=10 * DOLLAR)


def unplaceable(organisation: Any, count: int) -> list[Job]:
    """Jobs for eight devices, quoted on a node that left."""
    large = stage.node("large", devices=8)
    jobs = [stage.submit(organisation, stage.spec_of(**LARGE)) for _ in range(count)]
    Offer.objects.filter(node=large).update(is_open=False)
    return jobs


def test_jobs_that_fit_nowhere_at_the_head_stop_nobody_behind_them(mallory, alice):
    lost = unplaceable(mallory, 7)
    stage.node("bobs-node")
    hers = stage.submit(alice)
    own = stage.submit(mallory)
    placement.place_waiting()
    assert stage.states_of([hers]) == ["placed"]
    assert set(stage.states_of(lost)) == {"queued"}
    stage.node("another")
    placement.place_waiting()
    assert stage.states_of([own]) == ["placed"]


def test_the_next_tick_comes_further_than_one_that_ended_early(mallory, monkeypatch):
    unplaceable(mallory, 4)
    stage.node("bobs-node")
    own = stage.submit(mallory)
    monkeypatch.setattr(placement, "BATCHES_MAX", 1)
    placement.place_waiting()
    assert stage.states_of([own]) == ["queued"]
    placement.place_waiting()
    assert stage.states_of([own]) == ["placed"]


def test_jobs_that_wait_for_a_busy_node_stop_nobody_behind_them(mallory, alice):
    busy = stage.node("large", devices=8)
    stage.submit(mallory, stage.spec_of(**LARGE))
    placement.place_waiting()
    for _ in range(7):
        stage.submit(mallory, stage.spec_of(**LARGE))
    hers = stage.submit(alice)
    stage.node("bobs-node")
    placement.place_waiting()
    assert stage.states_of([hers]) == ["placed"]
    assert busy.leases.live().count() == 1


def test_a_job_without_money_takes_no_turn_until_the_money_has_come(mallory, alice):
    nodes = [stage.node(f"node-{number}") for number in range(3)]
    poor = stage.organisation("poor", usd_micros=2 * DOLLAR)
    theirs = [stage.submit(poor) for _ in range(5)]
    placement.place_waiting()
    assert sorted(stage.states_of(theirs)) == ["placed", *["queued"] * 4]
    placement.place_waiting()
    waiting = [job for job in theirs if job.state == "queued"]
    assert not Job.objects.placeable().exists(), "they are set aside"
    assert all("The balance does not cover the job's cap" in job.waiting_for for job in reloaded(waiting))
    deposits.credit(poor.id, 2 * DOLLAR, reference="later", actor="operator")
    placement.place_waiting()
    assert sorted(stage.states_of(theirs)) == ["placed", "placed", "queued", "queued", "queued"]
    assert len(nodes) == 3


def test_a_job_whose_price_cannot_be_read_stops_nobody_else(mallory, alice, monkeypatch):
    stage.node("bobs-node")
    odd, hers = stage.submit(mallory), stage.submit(alice)
    read = price_locks.price_of

    def price_of(job):
        if job.pk == odd.pk:
            raise ValueError("no such price")
        return read(job)

    monkeypatch.setattr(funding, "price_of", price_of)
    placement.place_waiting()
    assert stage.states_of([odd, hers]) == ["queued", "placed"]


def test_a_job_that_was_cancelled_meanwhile_is_not_set_aside(mallory):
    stage.node("bobs-node")
    job = stage.submit(stage.organisation("poor", usd_micros=2 * DOLLAR))
    Job.objects.filter(pk=job.pk).update(cap_usd_micros=100 * DOLLAR)
    seen = Job.objects.select_related("quote__asset").get(pk=job.pk)
    lifecycle.cancel(job.pk, actor="poor")
    assert funding.set_aside([seen]) == []
    job.refresh_from_db()
    assert job.unfunded_units is None


def test_jobs_of_frozen_balances_are_given_no_place_in_every_tick(mallory, alice):
    stage.node("bobs-node")
    frozen = [stage.organisation(f"frozen-{number}", usd_micros=10 * DOLLAR) for number in range(3)]
    theirs = [stage.submit(each) for each in frozen]
    hers = stage.submit(alice)
    accounts = Account.objects.filter(owner_id__in=[each.pk for each in frozen], kind=AccountKind.CUSTOMER_AVAILABLE)
    accounts.update(is_frozen=True)
    placement.place_waiting()
    assert stage.states_of([*theirs, hers]) == ["queued"] * 3 + ["placed"]
    assert all("frozen" in job.waiting_for for job in reloaded(theirs))
    placement.place_waiting()
    assert not Job.objects.placeable().exists(), "they are set aside"
    accounts.update(is_frozen=False)
    stage.node("another")
    placement.place_waiting()
    assert stage.states_of(theirs).count("placed") == 1


def test_gangs_that_take_all_the_time_stop_nobody_behind_them(mallory, alice, monkeypatch):
    gang = {"resources": {"gpus": 2, "nodes": 2, "kind": "any"}}
    bob = stage.organisation("bob")
    stage.link(*[stage.node(name, fabric="rack", provider=bob) for name in ("one", "two")])
    stage.submit(mallory, stage.spec_of(**gang))
    placement.place_waiting()
    theirs = [stage.submit(stage.organisation(f"sock-{n}", usd_micros=9 * DOLLAR), stage.spec_of(**gang)) for n in "ab"]
    hers = stage.submit(alice)
    stage.node("bobs-node")
    monkeypatch.setattr(placement, "MATCH_SECONDS_MAX", -1.0)  # as if each gang took all of it
    monkeypatch.setattr(placement, "BATCHES_MAX", 1)
    for _ in range(3):
        placement.place_waiting()
    assert stage.states_of([*theirs, hers]) == ["queued", "queued", "placed"]


def test_what_a_refused_job_was_given_is_given_to_the_next_in_the_same_tick(mallory, alice):
    stage.node("one")
    stage.node("two")
    poor = stage.organisation("poor", usd_micros=2 * DOLLAR)
    theirs = [stage.submit(poor) for _ in range(2)]
    hers = stage.submit(alice)
    Job.objects.filter(pk__in=[job.pk for job in theirs]).update(priority=90)
    placement.place_waiting()
    assert sorted(stage.states_of(theirs)) == ["placed", "queued"]
    assert stage.states_of([hers]) == ["placed"]


def test_organisations_take_turns_in_one_tick(mallory, alice):
    for name in ("one", "two", "three"):
        stage.node(name)
    theirs = [stage.submit(mallory) for _ in range(5)]
    hers = stage.submit(alice)
    placement.place_waiting()
    assert stage.states_of([hers]) == ["placed"]
    assert stage.states_of(theirs[:2]) == ["placed", "placed"]


def test_a_job_that_waits_for_its_node_leaves_the_others_to_those_behind_it(mallory, alice):
    for name in ("one", "two"):
        stage.node(name, devices=8)
    for _ in range(2):
        stage.submit(mallory, stage.spec_of(**SEVEN))
    placement.place_waiting()
    first = stage.submit(mallory, stage.spec_of(**LARGE))
    after = [stage.submit(alice, stage.spec_of(**ONE)) for _ in range(2)]
    placement.place_waiting()
    assert stage.states_of([first, *after]) == ["queued", "placed", "queued"]
    assert "kept for an older job" in after[1].waiting_for


def reloaded(jobs: list[Job]) -> list[Job]:
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]))
