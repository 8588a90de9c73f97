"""Moments that nodes name: those outside of the calendar are refused, and a stored one costs its row alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from marketplace.accounts.models import Membership, User
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Offer, Provider
from provider_agent.protocol import MOMENT_LAST
from tests import bad_rows
from tests.integration.nodes.agent import Agent, bring_online, device, facts
from tests.people import sign

pytestmark = pytest.mark.django_db

# Valid ISO 8601, and outside of what Python or PostgreSQL have once it is UTC; or without a time zone.
BEYOND = ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "3000-01-01T00:00:00Z", "2030-01-01T00:00:00"]


def enrol_body(provider: Provider, agent: Agent) -> dict[str, Any]:
    token = enrolment.issue_token(provider, actor="test")[1]
    body: dict[str, Any] = agent.enrol_request(token).model_dump(mode="json")
    return body


@pytest.mark.parametrize("moment", BEYOND)
def test_an_offer_that_ends_outside_of_the_calendar_is_refused(provider: Provider, agent: Agent, moment: str) -> None:
    body = enrol_body(provider, agent)
    body["offer"]["available_until"] = moment
    answer = Client().post("/api/agent/v1/enrol", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "offer.available_until" in answer.json()["message"]
    assert not Node.objects.exists()


@pytest.mark.parametrize("moment", BEYOND)
def test_a_rollback_outside_of_the_calendar_is_refused(provider: Provider, agent: Agent, moment: str) -> None:
    body = enrol_body(provider, agent)
    body["facts"]["updates"] = {"rolled_back": {"version": "1.0", "reason": "broke", "at": moment}}
    answer = Client().post("/api/agent/v1/enrol", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("moment", BEYOND[:3])
def test_a_provider_cannot_move_an_offer_out_of_the_calendar(node: Node, bob: Membership, moment: str) -> None:
    path = f"/api/v1/provider/nodes/{node.pk}/offer"
    answer = sign(bob).patch(path, {"available_until": moment}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_the_database_refuses_an_offer_beyond_the_calendar(node: Node) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Offer.objects.update(available_until=datetime(9999, 1, 1, tzinfo=UTC))
    with pytest.raises(IntegrityError), transaction.atomic():
        Node.objects.update(rolled_back_at=datetime(1, 1, 1, tzinfo=UTC))


def test_a_stored_offer_beyond_the_calendar_leaves_the_others_in_the_list(
    node: Node, provider: Provider, alice: Membership
) -> None:
    other = bring_online(Agent().enrol(provider, facts=facts(device("GPU-2"))))
    bad_rows.store(Offer, node.offers.get().pk, "available_until", bad_rows.YEAR_10000)
    offers = sign(alice).get("/api/v1/offers")
    assert offers.status_code == 200
    assert str(other.pk) in {each["node_id"] for each in offers.json()["results"]}
    assert Offer.objects.get(node=node).available_until == MOMENT_LAST


def test_operators_pages_show_rows_whose_moments_are_beyond_the_calendar(node: Node) -> None:
    bad_rows.store(Offer, node.offers.get().pk, "available_until", bad_rows.YEAR_10000)
    bad_rows.store(Node, node.pk, "rolled_back_at", bad_rows.YEAR_10000)
    client = Client()
    client.force_login(User.objects.create_superuser("operator@example.org"))
    for page in ("offer/", "node/", f"node/{node.pk}/change/"):
        assert client.get(f"/admin/nodes/{page}").status_code == 200, page
