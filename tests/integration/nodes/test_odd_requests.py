"""Numbers that no column holds, zero bytes and altered cursors are refused by name; none of them is a 500."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.test import Client

from marketplace.accounts.models import Membership
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Offer, Provider
from tests.integration.nodes.agent import Agent
from tests.people import sign

pytestmark = pytest.mark.django_db

ODD_NUMBERS = [
    ("facts", "cpu_count", 2**31),
    ("facts", "memory_mib", 2**63),
    ("facts", "disk_free_mib", 10**400),
    ("facts", "disk_bytes_per_second", 2**63),
    ("facts", "cpu_count", True),
    ("offer", "seconds_max", 2**31),
    ("offer", "seconds_min", -1),
    ("offer", "price_usd_micros_per_device_hour", True),
    ("offer", "price_usd_micros_per_device_hour", 1.0),
]
ODD_DETAILS = [{"bar1_mib": 10**400}, {"power": float("nan")}, {"power": 1.79e308}, {"a" * 41: 1}, {"is": True}]
ODD_CURSORS = [
    *["p=soon", "p=10000-01-01T00:00:00Z", "p=\0", "p=9999-12-31T23:59:59-14:00", "o=-1", "o=x", "p=1", ""],
    *["p=2026-01-01T00:00:00%2B16:00", "p=2026-01-01T00:00:00-00:00:00.5"],  # zones that only Python reads
]


def enrol(provider: Provider, agent: Agent, change: Any) -> Any:
    body = agent.enrol_request(enrolment.issue_token(provider, actor="test")[1]).model_dump(mode="json")
    change(body)
    return Client().post("/api/agent/v1/enrol", json.dumps(body), content_type="application/json")


@pytest.mark.parametrize(("part", "field", "value"), ODD_NUMBERS)
def test_a_number_that_no_column_holds_is_refused_by_name(
    provider: Provider, agent: Agent, part: str, field: str, value: Any
) -> None:
    answer = enrol(provider, agent, lambda body: body[part].update({field: value}))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.content
    assert not Node.objects.exists()


@pytest.mark.parametrize("details", ODD_DETAILS)
def test_details_of_a_device_have_bounds(provider: Provider, agent: Agent, details: dict[str, Any]) -> None:
    answer = enrol(provider, agent, lambda body: body["facts"]["devices"][0].update(details=details))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.content


def test_true_is_no_price(node: Node, agent: Agent, bob: Membership) -> None:
    answer = agent.post("/api/agent/v1/price", b'{"price_usd_micros_per_device_hour": true}')
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    path = f"/api/v1/provider/nodes/{node.pk}/offer"
    changed = sign(bob).patch(path, {"price_usd_micros_per_device_hour": True}, format="json")
    assert changed.status_code == 400
    assert Offer.objects.get(is_open=True).price_usd_micros_per_device_hour > 1


@pytest.mark.parametrize("cursor", ODD_CURSORS)
@pytest.mark.parametrize("path", ["/api/v1/offers", "/api/v1/provider/nodes", "/api/v1/jobs", "/api/v1/transfers"])
def test_an_altered_cursor_is_refused(node: Node, bob: Membership, path: str, cursor: str) -> None:
    answer = sign(bob).get(path, {"cursor": base64.b64encode(cursor.encode()).decode()})
    assert answer.status_code in {200, 400}, answer.content
    assert sign(bob).get(path, {"cursor": cursor + "\xff"}).status_code in {200, 400}


def test_a_cursor_leads_to_the_next_page(node: Node, provider: Provider, bob: Membership) -> None:
    for _ in range(3):
        enrolment.issue_token(provider, actor="test")
    first = sign(bob).get("/api/v1/provider/enrolment-tokens", {"page_size": 2}).json()
    second = sign(bob).get(first["next"]).json()
    assert (len(first["results"]), len(second["results"])) == (2, 2)
    assert {each["id"] for each in first["results"]}.isdisjoint(each["id"] for each in second["results"])


def test_zero_bytes_in_names_and_reasons_are_refused(node: Node, agent: Agent, bob: Membership) -> None:
    client, place = sign(bob), f"/api/v1/provider/nodes/{node.pk}"
    answers = [
        agent.post("/api/agent/v1/drain", b'{"reason": "tired\\u0000"}'),
        agent.post("/api/agent/v1/links/0190c0de-0000-7000-8000-000000000000", b'{"dial_why": "\\u0000"}'),
        client.post(f"{place}/drain", {"reason": "tired\0"}, format="json"),
        client.post("/api/v1/endpoint-keys", {"name": "a\0key"}, format="json"),
        client.post("/api/v1/quotes", {"spec": {"name": "a\0", "nested": [{"b\0": 1}]}}, format="json"),
        client.get("/api/v1/offers?model=%00"),
        client.get("/api/v1/jobs?name=a%00b"),
    ]
    assert [answer.status_code for answer in answers] == [400] * len(answers), [each.content for each in answers]
    assert Node.objects.get().drain_reason == ""


def test_a_backslash_before_u0000_is_no_zero_byte(node: Node, agent: Agent) -> None:
    answer = agent.post("/api/agent/v1/drain", b'{"reason": "write \\\\u0000"}')
    assert (answer.status_code, Node.objects.get().drain_reason) == (200, "write \\u0000")
