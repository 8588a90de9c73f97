"""A quote's ceiling does not hang on one provider who may be gone, and a job that nobody takes says what would help."""

from __future__ import annotations

import pytest

from jobs.models import Quote
from jobs.placing import placement
from jobs.quoting import quotes
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node, Offer
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)
DUST = 100


@pytest.fixture
def alice():
    return stage.organisation("alice", usd_micros=10 * DOLLAR)


def leave(node: Node) -> None:
    Offer.objects.filter(node=node).update(is_open=False)


def known(name: str, price_usd_micros: int) -> Node:
    """A node that brought jobs to their end before."""
    node = stage.node(name, price_usd_micros=price_usd_micros)
    Node.objects.filter(pk=node.pk).update(successes=5)
    return node


def ceiling(alice: Organisation) -> int:
    return Quote.objects.get(pk=stage.quote(alice)).price_ceiling_usd_micros


def test_a_price_of_dust_that_vanishes_leaves_no_job_below_every_price(alice):
    known("bobs-node", DOLLAR)
    known("carols-node", DOLLAR)
    mallory = stage.organisation("mallory")
    dust = [stage.node(f"dust-{number}", price_usd_micros=DUST, provider=mallory) for number in range(5)]
    job = stage.submit(alice)
    for node in dust:
        leave(node)
    placement.place_waiting()
    assert stage.states_of([job]) == ["placed"]


def test_a_ceiling_rests_on_nodes_that_have_a_record(alice):
    for number in range(3):
        stage.node(f"new-{number}", price_usd_micros=DUST)
    for number in range(3):
        known(f"known-{number}", DOLLAR + number)
    assert ceiling(alice) == DOLLAR + 1


@pytest.mark.parametrize("has_record", [False, True])
def test_one_dear_provider_raises_no_ceiling(alice, has_record):
    known("bobs-node", DOLLAR)
    known("carols-node", DOLLAR + 100_000)
    dear = known("dear", 900 * DOLLAR)
    Node.objects.filter(pk=dear.pk).update(successes=5 * has_record)
    assert ceiling(alice) == 3 * DOLLAR


def test_of_two_providers_who_are_not_known_none_raises_the_ceiling(alice):
    known("bobs-node", DOLLAR)
    stage.node("dear", price_usd_micros=900 * DOLLAR)
    assert ceiling(alice) == 3 * DOLLAR


def test_a_ceiling_of_the_customer_stays_what_it_is(alice):
    stage.node("bobs-node", price_usd_micros=DUST)
    stage.node("carols-node", price_usd_micros=DOLLAR)
    spec = stage.spec_of(budget={"max_total": "2.00", "max_per_gpu_hour": "0.50"})
    assert quotes.make_quote(spec, alice).price_ceiling_usd_micros == DOLLAR // 2


def test_a_job_that_nobody_takes_under_its_ceiling_says_so_and_what_would_help(alice):
    cheap = stage.node("cheap", price_usd_micros=DOLLAR // 10)
    job = stage.submit(alice)
    leave(cheap)
    stage.node("dear", price_usd_micros=DOLLAR)
    for _ in range(2):
        placement.place_waiting()
        job.refresh_from_db()
        assert job.state == "queued"
        assert "1 above your price of $0.30 per device and hour" in job.waiting_for
        assert f"souk cancel {job.pk}" in job.waiting_for
        assert "launch it again with budget.max_per_gpu_hour: 1.00" in job.waiting_for


def test_a_job_that_no_change_helps_says_that_it_may_wait_or_be_cancelled(alice):
    node = stage.node("bobs-node")
    job = stage.submit(alice)
    leave(node)
    placement.place_waiting()
    job.refresh_from_db()
    assert job.waiting_for.startswith("0 of 1 nodes: 1 without an open offer")
    assert "Wait until such a node is there, or cancel the job" in job.waiting_for
