"""What customers see, and how a provider changes it."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest

from marketplace.accounts.models import Membership
from marketplace.foundation import clock
from marketplace.nodes.errors import NoOpenOffer
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import Node, Offer, Provider
from marketplace.nodes.offering import availability, offers, schedule
from provider_agent.protocol import Away, Schedule
from tests.integration.nodes.agent import DOLLAR, Agent, bring_online, device, facts, measurements, terms
from tests.integration.nodes.conftest import found, provider_of
from tests.integration.racing import race
from tests.people import sign
from tests.row_states import put_in_state

pytestmark = pytest.mark.django_db


def listed(alice: Membership, **asked: Any) -> list[str]:
    answer = sign(alice).get("/api/v1/offers", asked)
    assert answer.status_code == 200, answer.content
    return [row["node_name"] for row in answer.json()["results"]]


def test_alice_sees_what_she_can_rent(alice: Membership, node: Node) -> None:
    (row,) = sign(alice).get("/api/v1/offers").json()["results"]
    assert row["price_usd_micros_per_device_hour"] == 2 * DOLLAR
    assert (row["provider"], row["region"], row["executor"]) == ("bob", "eu-west", "docker")
    assert row["devices"][0]["flops_per_second"] == {"bfloat16": 4e14}
    text = str(row)
    assert "GPU-1" not in text
    assert node.transport_public_key not in text


def test_offer_shows_isolation_network_and_labels_of_shared_host_folders(alice: Membership, node: Node) -> None:
    reported = {"isolation": "gvisor", "egress": True, "lent": ["corpus"]}
    (row,) = sign(alice).get("/api/v1/offers").json()["results"]
    assert {name: row[name] for name in reported} == {"isolation": "runc", "egress": False, "lent": []}
    Node.objects.update(facts={**node.facts, **reported})
    (row,) = sign(alice).get("/api/v1/offers").json()["results"]
    assert {name: row[name] for name in reported} == reported


@pytest.mark.parametrize("state", ["offline", "draining", "quarantined", "retired"])
def test_only_nodes_that_are_online_are_listed(alice: Membership, node: Node, state: str) -> None:
    put_in_state(Node.objects.all(), state)
    assert listed(alice) == []


def test_a_pending_node_is_not_listed(alice: Membership, provider: Provider, agent: Agent) -> None:
    pending = agent.enrol(provider)
    assert (pending.state, pending.offers.count()) == ("pending", 1)
    devices.record_measurements(pending, measurements("GPU-1"))
    assert listed(alice) == []


def test_a_node_that_is_closed_at_this_hour_is_not_listed(alice: Membership, node: Node) -> None:
    now = clock.now()
    schedule.declare(node, Schedule(away=[Away(begins_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1))]))
    assert listed(alice) == []
    schedule.declare(node, Schedule(away=[Away(begins_at=now + timedelta(hours=1), ends_at=now + timedelta(hours=2))]))
    assert listed(alice) == ["bobs-node"]


def test_offers_that_are_over_or_withdrawn_are_not_listed(alice: Membership, node: Node) -> None:
    offers.publish(node, terms(available_until=clock.now() + timedelta(hours=1)))
    assert listed(alice) == ["bobs-node"]
    offers.publish(node, terms(available_until=clock.now() - timedelta(seconds=1)))
    assert listed(alice) == []
    offers.publish(node, terms())
    offers.withdraw(node)
    assert listed(alice) == []


@pytest.mark.parametrize(
    ("asked", "is_listed"),
    [
        ({"kind": "gpu"}, True),
        ({"kind": "cpu"}, False),
        ({"model": "h100"}, True),
        ({"model": "a100"}, False),
        ({"region": "eu-west"}, True),
        ({"region": "us-east"}, False),
        ({"executor": "docker"}, True),
        ({"executor": "process"}, False),
        ({"memory_mib_min": 80_000}, True),
        ({"memory_mib_min": 80_001}, False),
        ({"price_usd_micros_max": 2 * DOLLAR}, True),
        ({"price_usd_micros_max": 2 * DOLLAR - 1}, False),
        ({"kind": "gpu", "model": "H100", "memory_mib_min": 1}, True),
    ],
)
def test_filters(alice: Membership, node: Node, asked: dict[str, Any], is_listed: bool) -> None:
    assert listed(alice, **asked) == (["bobs-node"] if is_listed else [])


@pytest.mark.parametrize("asked", [{"modell": "H100"}, {"kind": "tpu"}, {"memory_mib_min": "much"}])
def test_a_filter_that_does_not_exist_is_refused(alice: Membership, node: Node, asked: dict[str, Any]) -> None:
    assert sign(alice).get("/api/v1/offers", asked).status_code == 400


def test_offers_are_paged_by_cursor(alice: Membership, provider: Provider) -> None:
    for number in range(3):
        agent = Agent()
        bring_online(agent.enrol(provider, name=f"node-{number}", facts=facts(device(f"GPU-{number}"))))
    client = sign(alice)
    page = client.get("/api/v1/offers", {"page_size": 2}).json()
    assert [row["node_name"] for row in page["results"]] == ["node-2", "node-1"]
    assert [row["node_name"] for row in client.get(page["next"]).json()["results"]] == ["node-0"]


def test_the_cost_of_the_list_does_not_grow_with_it(
    alice: Membership, provider: Provider, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        bring_online(Agent().enrol(provider, facts=facts(device(f"GPU-{number}"))))
    client = sign(alice)
    client.get("/api/v1/offers")
    with django_assert_max_num_queries(5):  # the key, its membership, who is closed, the offers, their devices
        assert len(client.get("/api/v1/offers").json()["results"]) == 5


def test_a_new_price_is_a_new_offer_and_the_old_one_is_kept(bob: Membership, node: Node) -> None:
    old = node.offers.get()
    body = {"price_usd_micros_per_device_hour": 3 * DOLLAR}
    answer = sign(bob).patch(f"/api/v1/provider/nodes/{node.pk}/offer", body, format="json")
    assert answer.status_code == 200, answer.content
    assert (answer.json()["price_usd_micros_per_device_hour"], answer.json()["region"]) == (3 * DOLLAR, "eu-west")
    old.refresh_from_db()
    assert (old.is_open, old.price_usd_micros_per_device_hour) == (False, 2 * DOLLAR)


@pytest.mark.parametrize(
    "body",
    [
        {"price_usd_micros_per_device_hour": 0},
        {"price_usd_micros_per_device_hour": -1},
        {"price_usd_micros_per_device_hour": 10**12},
        {"price_usd_micros_per_device_hour": 0.5},
        {"region": "Nowhere!"},
        {"seconds_min": 10, "seconds_max": 5},
        {"is_open": False},
        {"node": "00000000-0000-0000-0000-000000000000"},
    ],
)
def test_terms_that_cannot_be_are_refused(bob: Membership, node: Node, body: dict[str, Any]) -> None:
    answer = sign(bob).patch(f"/api/v1/provider/nodes/{node.pk}/offer", body, format="json")
    assert answer.status_code == 400, answer.content
    assert Offer.objects.count() == 1


def test_there_is_nothing_to_change_where_no_offer_is_open(node: Node) -> None:
    offers.withdraw(node)
    with pytest.raises(NoOpenOffer):
        offers.change(node, seconds_min=1)


@pytest.mark.django_db(transaction=True)
def test_changes_at_once_leave_one_open_offer() -> None:
    node = Agent().enrol(provider_of(found("bob")))
    prices = [functools.partial(offers.change, node, price_usd_micros_per_device_hour=price) for price in (1, 2, 3, 4)]
    outcomes = race(*prices)
    assert all(isinstance(outcome, Offer) for outcome in outcomes), outcomes
    assert Offer.objects.filter(is_open=True).count() == 1


def test_a_drained_node_is_listed_again_once_it_resumes(alice: Membership, node: Node) -> None:
    availability.drain(node, actor="test")
    assert listed(alice) == []
    availability.resume(node, actor="test")
    assert listed(alice) == ["bobs-node"]
