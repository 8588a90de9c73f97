"""A provider's routes: who may use them, and for whose nodes."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from marketplace.accounts.models import Membership
from marketplace.foundation.models import Event
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.urls import urlpatterns
from marketplace.nodes.watching import liveness
from tests.integration.nodes.agent import Agent
from tests.integration.nodes.conftest import provider_of
from tests.people import sign

pytestmark = pytest.mark.django_db

NOBODY = "00000000-0000-4000-8000-000000000000"  # the same in every process: it is part of tests' names
READ, WRITE = "provider:read", "provider:write"
# method, path, then: owner, billing role, a key that may only read, one for jobs only, nobody
MATRIX = [
    ("get", "provider", "200 403 200 403 401"),
    ("post", "provider", "400 403 403 403 401"),
    ("get", "provider/enrolment-tokens", "200 403 200 403 401"),
    ("post", "provider/enrolment-tokens", "201 403 403 403 401"),
    ("get", "provider/nodes", "200 403 200 403 401"),
    ("get", f"provider/nodes/{NOBODY}", "404 403 404 403 401"),
    ("get", f"provider/nodes/{NOBODY}/checks", "404 403 404 403 401"),
    ("get", f"provider/nodes/{NOBODY}/reputation", "404 403 404 403 401"),
    ("post", f"provider/nodes/{NOBODY}/drain", "404 403 403 403 401"),
    ("post", f"provider/nodes/{NOBODY}/resume", "404 403 403 403 401"),
    ("post", f"provider/nodes/{NOBODY}/retire", "404 403 403 403 401"),
    ("get", f"provider/nodes/{NOBODY}/metrics", "404 403 404 403 401"),
    ("get", f"provider/nodes/{NOBODY}/schedule", "404 403 404 403 401"),
    ("put", f"provider/nodes/{NOBODY}/schedule", "404 403 403 403 401"),
    ("patch", f"provider/nodes/{NOBODY}/offer", "404 403 403 403 401"),
]


@pytest.mark.parametrize(("method", "path", "expected"), MATRIX)
def test_each_role_gets_what_the_table_says(
    bob: Membership, billing_role: Membership, provider: Provider, method: str, path: str, expected: str
) -> None:
    callers = [sign(bob), sign(billing_role), sign(bob, [READ]), sign(bob, ["jobs:read"]), APIClient()]
    answers = [getattr(client, method)(f"/api/v1/{path}", {}, format=_format(method)) for client in callers]
    assert " ".join(str(answer.status_code) for answer in answers) == expected


def _format(method: str) -> str | None:
    return None if method == "get" else "json"


def test_the_table_names_every_route() -> None:
    routes = {str(pattern.pattern).replace("<uuid:node_id>", NOBODY) for pattern in urlpatterns}
    assert {path for _, path, _ in MATRIX} == routes


def test_an_organisation_becomes_a_provider_once(bob: Membership) -> None:
    client, body = sign(bob), {"display_name": "Bob's GPUs"}
    assert client.get("/api/v1/provider").json()["code"] == "no_provider"
    assert client.post("/api/v1/provider", body, format="json").status_code == 201
    assert client.post("/api/v1/provider", body, format="json").json()["code"] == "provider_exists"
    assert client.get("/api/v1/provider").json()["display_name"] == "Bob's GPUs"


def test_a_token_is_shown_once_and_enrols(bob: Membership, provider: Provider) -> None:
    client = sign(bob)
    made = client.post("/api/v1/provider/enrolment-tokens", {"note": "rack 1"}, format="json")
    assert made.status_code == 201
    token = made.json()["token"]
    assert token not in client.get("/api/v1/provider/enrolment-tokens").content.decode()
    node = enrolment.enrol(Agent().enrol_request(token))
    (row,) = client.get("/api/v1/provider/enrolment-tokens").json()["results"]
    assert (row["note"], row["node"]) == ("rack 1", str(node.pk))


def test_a_token_request_that_is_repeated_makes_one_token(bob: Membership, provider: Provider) -> None:
    client = sign(bob)
    answers = [
        client.post("/api/v1/provider/enrolment-tokens", {}, format="json", HTTP_IDEMPOTENCY_KEY="k") for _ in range(2)
    ]
    assert answers[0].content == answers[1].content
    assert provider.enrolment_tokens.count() == 1


def test_bob_sees_his_node_with_its_devices_and_offer(bob: Membership, node: Node) -> None:
    (row,) = sign(bob).get("/api/v1/provider/nodes").json()["results"]
    assert (row["id"], row["state"], row["devices"][0]["uuid"]) == (str(node.pk), "online", "GPU-1")
    assert row["offer"]["price_usd_micros_per_device_hour"] == 2_000_000
    assert row == sign(bob).get(f"/api/v1/provider/nodes/{node.pk}").json()


def test_bob_drains_resumes_and_retires(bob: Membership, node: Node) -> None:
    client = sign(bob)

    def do(verb: str, body: dict[str, Any] | None = None) -> str:
        answer = client.post(f"/api/v1/provider/nodes/{node.pk}/{verb}", body or {}, format="json")
        return str(answer.json().get("state") or answer.json()["code"])

    assert [do("drain", {"reason": "new fan"}), do("drain"), do("resume"), do("resume")] == [
        *["draining", "draining", "online", "online"]
    ]
    event = Event.objects.get(subject_id=node.pk, to_state="draining")
    assert (event.reason, event.actor) == ("new fan", f"{bob.organisation_id}:{bob.user_id}")
    assert [do("retire"), do("retire"), do("drain")] == ["retired", "retired", "state_conflict"]


def test_a_node_that_is_away_can_be_drained(bob: Membership, node: Node) -> None:
    liveness.mark_offline([node.pk])
    row = sign(bob).post(f"/api/v1/provider/nodes/{node.pk}/drain", {}, format="json").json()
    assert row["state"] == "offline"
    assert row["drain_requested_at"] is not None


def test_mallory_reaches_nothing_of_bobs(mallory: Membership, node: Node) -> None:
    provider_of(mallory)
    client = sign(mallory)
    path = f"/api/v1/provider/nodes/{node.pk}"
    answers = [
        client.get(path),
        *[client.post(f"{path}/{verb}", {}, format="json") for verb in ("drain", "resume", "retire")],
        client.patch(f"{path}/offer", {"price_usd_micros_per_device_hour": 1}, format="json"),
    ]
    assert [answer.status_code for answer in answers] == [404] * 5
    assert client.get("/api/v1/provider/nodes").json()["results"] == []
    assert Node.objects.get(pk=node.pk).state == "online"
