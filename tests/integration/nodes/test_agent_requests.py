"""drain, resume and price by the node's own signature: bounded, repeatable, and about itself alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from marketplace.accounts.models import Membership
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node, Offer, Provider
from marketplace.nodes.offering import availability
from provider_agent.protocol import DrainRequest, PriceRequest, ResumeRequest
from tests.integration.nodes.agent import DOLLAR, Agent, bring_online, device, facts

pytestmark = pytest.mark.django_db

API = "/api/agent/v1"


def send_request(agent: Agent, name: str, message: Any) -> Any:
    return agent.post(f"{API}/{name}", message.model_dump_json().encode())


def test_node_drains_and_resumes_itself_and_repeats_change_nothing(agent: Agent, node: Node) -> None:
    for _ in range(2):
        answer = send_request(agent, "drain", DrainRequest(reason="faulty: python has no torch"))
        assert (answer.status_code, answer.json()["node_state"]) == (200, "draining")
    assert Node.objects.get().drain_reason == "faulty: python has no torch"
    assert Event.objects.filter(subject_id=node.pk, to_state="draining", actor=f"node:{node.pk}").count() == 1
    for _ in range(2):
        assert send_request(agent, "resume", ResumeRequest()).json() == {
            "node_state": "online",
            "drain_reason": "",
            "price_usd_micros_per_device_hour": 2 * DOLLAR,
        }
    assert Event.objects.filter(subject_id=node.pk, from_state="draining", to_state="online").count() == 1


def test_node_in_quarantine_cannot_resume_itself(agent: Agent, node: Node) -> None:
    availability.quarantine(node, actor="operator:1", reason="lied")
    assert send_request(agent, "resume", ResumeRequest()).status_code == 409
    assert Node.objects.get().state == "quarantined"


def test_node_changes_its_price_once_however_often_it_asks(agent: Agent, node: Node) -> None:
    for _ in range(2):
        answer = send_request(agent, "price", PriceRequest(price_usd_micros_per_device_hour=3 * DOLLAR))
        assert answer.json()["price_usd_micros_per_device_hour"] == 3 * DOLLAR
    prices = Offer.objects.order_by("created_at").values_list("price_usd_micros_per_device_hour", "is_open")
    assert list(prices) == [(2 * DOLLAR, False), (3 * DOLLAR, True)]


def test_a_captured_price_that_is_sent_again_undoes_no_newer_one(agent: Agent, node: Node) -> None:
    captured = signed_price(agent, 1 * DOLLAR)
    assert Client().post(**captured).status_code == 200
    assert send_request(agent, "price", PriceRequest(price_usd_micros_per_device_hour=3 * DOLLAR)).status_code == 200
    answer = Client().post(**captured)
    assert (answer.status_code, answer.json()["code"]) == (409, "request_outdated")
    assert Offer.objects.get(is_open=True).price_usd_micros_per_device_hour == 3 * DOLLAR


def test_a_captured_price_undoes_nothing_that_a_person_changed(
    agent: Agent, node: Node, bob: Membership, settings: Any
) -> None:
    captured = signed_price(agent, 1 * DOLLAR)
    client = Client()
    client.force_login(bob.user)
    changed = {"price_usd_micros_per_device_hour": 3 * DOLLAR}
    at = f"/api/v1/provider/nodes/{node.pk}/offer"
    assert client.patch(at, changed, content_type="application/json").status_code == 200
    assert Client().post(**captured).status_code == 409
    assert Offer.objects.get(is_open=True).price_usd_micros_per_device_hour == 3 * DOLLAR


def test_a_captured_drain_takes_no_node_out_that_resumed(agent: Agent, node: Node) -> None:
    body = DrainRequest(reason="old").model_dump_json().encode()
    captured = {
        "path": f"{API}/drain",
        "data": body,
        "content_type": "application/json",
        "headers": agent.headers("POST", f"{API}/drain", body),
    }
    assert send_request(agent, "resume", ResumeRequest()).status_code == 200
    assert Client().post(**captured).status_code == 409
    assert Node.objects.get().state == "online"


def signed_price(agent: Agent, usd_micros: int) -> dict[str, Any]:
    """A request as somebody between the node and the marketplace captures it."""
    body = PriceRequest(price_usd_micros_per_device_hour=usd_micros).model_dump_json().encode()
    headers = agent.headers("POST", f"{API}/price", body)
    return {"path": f"{API}/price", "data": body, "content_type": "application/json", "headers": headers}


@pytest.mark.parametrize("price", [b"0", b"-1", b"1000000001", b'"x"', b"1.5"])
def test_a_price_out_of_bounds_changes_nothing(agent: Agent, node: Node, price: bytes) -> None:
    answer = agent.post(f"{API}/price", b'{"price_usd_micros_per_device_hour": ' + price + b"}")
    assert answer.status_code == 400
    assert Offer.objects.get().price_usd_micros_per_device_hour == 2 * DOLLAR


def test_mallory_can_name_no_other_node(agent: Agent, node: Node, provider: Provider) -> None:
    mallory = Agent()
    other = bring_online(mallory.enrol(provider, facts=facts(device("GPU-2")), name="mallorys-node"))
    body = PriceRequest(price_usd_micros_per_device_hour=1).model_dump_json().encode()
    headers = mallory.headers("POST", f"{API}/price", body) | {"Souk-Node": str(node.pk)}
    answer = Client().post(f"{API}/price", body, content_type="application/json", headers=headers)
    assert answer.status_code == 401
    assert send_request(mallory, "price", PriceRequest(price_usd_micros_per_device_hour=1)).status_code == 200
    assert node.offers.get(is_open=True).price_usd_micros_per_device_hour == 2 * DOLLAR
    assert other.offers.get(is_open=True).price_usd_micros_per_device_hour == 1


def test_node_learns_how_it_stands(agent: Agent, node: Node) -> None:
    availability.drain(node, actor="operator:1", reason="operator")
    path = f"{API}/standing"
    found = Client().get(path, headers=agent.headers("GET", path, b"")).json()
    assert (found["node_state"], found["drain_reason"]) == ("draining", "operator")
