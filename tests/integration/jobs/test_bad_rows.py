"""A row that cannot be read, somehow stored, costs itself alone: quotes, placing and gateways go on with the others."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.test import Client

from jobs.endpoints import keys
from jobs.gateway.messages import KeyGrant
from jobs.matching import fleet
from jobs.models import EndpointKey
from marketplace.accounts.models import Organisation, User
from marketplace.nodes.models import Device, Node, Offer
from marketplace.nodes.offering import schedule
from provider_agent.protocol import MOMENT_LAST
from tests import bad_rows, stage
from tests.integration.jobs.serving import scenes

pytestmark = pytest.mark.django_db

BAD_COLUMNS = [
    (Node, "schedule", '{"away": 5}'),
    (Node, "schedule", "[1]"),
    (Node, "facts", '{"lent": 5}'),
    (Node, "facts", '{"runtime_features": {"a": [1]}, "lent": [[1]]}'),
]


@pytest.fixture
def alice(db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=50 * stage.DOLLAR)


@pytest.fixture
def bob(db: None) -> Node:
    return stage.node("bobs-node")


@pytest.fixture
def mallory(db: None) -> Node:
    return stage.node("mallorys-node")


def test_an_offer_beyond_the_calendar_stops_no_quote(alice: Organisation, bob: Node, mallory: Node) -> None:
    bad_rows.store(Offer, mallory.offers.get().pk, "available_until", bad_rows.YEAR_10000)
    assert set(fleet.take_snapshot().node_ids) == {bob.pk, mallory.pk}
    assert stage.quote(alice) is not None


@pytest.mark.parametrize(("model", "column", "value"), BAD_COLUMNS)
def test_a_node_that_cannot_be_read_leaves_the_others_in_the_snapshot(
    alice: Organisation, bob: Node, mallory: Node, model: type[Node], column: str, value: str
) -> None:
    bad_rows.store(model, mallory.pk, column, value)
    assert fleet.take_snapshot().node_ids == (bob.pk,)
    assert stage.quote(alice) is not None


@pytest.mark.parametrize("flops", ["[1]", '{"float32": "fast"}', '{"float32": null}'])
def test_a_device_that_cannot_be_read_costs_its_node_its_place(
    alice: Organisation, bob: Node, mallory: Node, flops: str
) -> None:
    bad_rows.store(Device, mallory.devices.all()[0].pk, "flops_per_second", flops)
    snapshot = fleet.take_snapshot()
    groups = dict(zip(snapshot.node_ids, snapshot.groups, strict=True))
    assert (len(groups[bob.pk]), groups[mallory.pk]) == (1, ())
    assert [lease.node for lease in stage.place(stage.submit(alice))] == [bob]


def test_hours_that_cannot_be_read_close_their_node_alone(bob: Node, mallory: Node) -> None:
    bad_rows.store(Node, mallory.pk, "schedule", '{"hours": "always"}')
    assert schedule.closed_nodes() == [mallory.pk]


def test_a_key_beyond_the_calendar_leaves_the_gateway_the_others(alice: Organisation) -> None:
    good, bad = scenes.key(alice), scenes.key(stage.organisation("mallory"))
    bad_rows.store(EndpointKey, bad.pk, "expires_at", bad_rows.YEAR_10000)
    assert good.pk in _granted(good, bad)
    assert EndpointKey.objects.get(pk=bad.pk).expires_at == MOMENT_LAST


def test_a_key_that_cannot_be_read_leaves_the_gateway_the_others(alice: Organisation) -> None:
    good, bad = scenes.key(alice), scenes.key(stage.organisation("mallory"))
    bad_rows.store(EndpointKey, bad.pk, "endpoint_ids", '["everything"]')
    assert list(_granted(good, bad)) == [good.pk]


def test_operators_see_keys_beyond_the_calendar(alice: Organisation) -> None:
    bad_rows.store(EndpointKey, scenes.key(alice).pk, "expires_at", bad_rows.YEAR_10000)
    client = Client()
    client.force_login(User.objects.create_superuser("operator@example.org"))
    assert client.get("/admin/jobs/endpointkey/").status_code == 200


def _granted(*rows: EndpointKey) -> dict[UUID, KeyGrant]:
    grants = keys.key_grants_for(scenes.gateway(), key_hashes=[row.key_hash for row in rows])
    return {grant.key_id: grant for grant in grants}
