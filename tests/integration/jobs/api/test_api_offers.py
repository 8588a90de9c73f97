"""GET /api/v1/offers for anybody: what is busy is shown, what is private is not."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from jobs.api import offers
from marketplace.accounts.models import Organisation
from marketplace.foundation.throttles import AnonThrottle
from marketplace.nodes.models import Node, Provider
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of

pytestmark = pytest.mark.django_db(transaction=True)


def listed(client: APIClient | None = None) -> list[dict[str, Any]]:
    answer = (client or APIClient()).get(f"{API}/offers")
    assert answer.status_code == 200, answer.content
    rows: list[dict[str, Any]] = answer.json()["results"]
    return rows


def test_offers_need_no_account_and_show_what_is_busy(alice: Organisation, bob: Node) -> None:
    stage.node("idle-node")
    assert [row["devices_busy"] for row in listed()] == [0, 0]
    _, (lease,) = stage.running_job(alice)
    by_node = {row["node_id"]: row for row in listed()}
    assert by_node[str(lease.node_id)]["devices_busy"] == len(by_node[str(lease.node_id)]["devices"]) == 2
    assert sorted(row["devices_busy"] for row in listed()) == [0, 2]
    stage.bill(lease, ms=1_000)
    stage.finish(lease)
    assert [row["devices_busy"] for row in listed()] == [0, 0]


def test_a_stranger_sees_neither_names_of_computers_nor_addresses(alice: Organisation, bob: Node) -> None:
    Provider.objects.filter(pk=bob.provider_id).update(display_name="bob@example.org")
    Node.objects.filter(pk=bob.pk).update(
        fabric_address="10.1.2.3", facts={**bob.facts, "lent": ["bobs-private-corpus"], "hostname": "rack.bob.example"}
    )
    answer = APIClient().get(f"{API}/offers").content.decode()
    for private in (
        "bobs-node",
        "10.1.2.3",
        "bobs-private-corpus",
        "example",
        "@",
        bob.transport_public_key or "-key-",
    ):
        assert private not in answer
    (row,) = listed(client_of(alice))
    assert (row["node_name"], row["lent"]) == ("bobs-node", ["bobs-private-corpus"])


def test_a_page_is_bounded_for_strangers_too(bob: Node) -> None:
    page = APIClient().get(f"{API}/offers", {"page_size": 1}).json()
    assert len(page["results"]) == 1
    assert APIClient().get(f"{API}/offers", {"cursor": "x"}).status_code == 400
    assert APIClient().post(f"{API}/offers").status_code in (401, 403, 405)


def test_a_stranger_may_ask_only_so_often(bob: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert AnonThrottle in {type(throttle) for throttle in offers.OffersView().get_throttles()}
    monkeypatch.setattr(AnonThrottle, "THROTTLE_RATES", {"anon": "3/min"})
    cache.clear()
    statuses = [APIClient().get(f"{API}/offers").status_code for _ in range(4)]
    cache.clear()
    assert statuses == [200, 200, 200, 429]


def test_the_cost_of_the_list_does_not_grow_with_it(bob: Node, django_assert_max_num_queries: Any) -> None:
    for number in range(4):
        stage.node(f"node-{number}")
    with django_assert_max_num_queries(4):  # who is closed, the offers with what is busy, their devices
        assert len(listed()) == 5
