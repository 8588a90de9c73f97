"""An agent goes where the marketplace says that its gateways are, and believes nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.porter import Porter
from provider_agent.protocol import GatewayList, GatewayPlace, SignedGateways, sign_gateways
from provider_agent.serving import hear_gateways

from .fake_server import FakeServer


def told(node_id: UUID, *urls: str, seconds: float = 0) -> GatewayList:
    """Gateways at these addresses."""
    places = [GatewayPlace(url=url, public_key="ab" * 32) for url in urls]
    return GatewayList(node_id=node_id, told_at=datetime.now(UTC) + timedelta(seconds=seconds), gateways=places)


def heard(porter: Porter) -> list[str]:
    """Where the replicas here are to be announced."""
    return [place.url for place in porter.gateways.gateways] if porter.gateways else []


def test_newer_gateways_take_the_place_of_older_ones_and_never_the_other_way(
    porter: Porter, server: FakeServer
) -> None:
    node_id = porter.config.node_id
    hear_gateways(porter, None)
    assert porter.gateways is None
    first, second = told(node_id, "ws://one"), told(node_id, "ws://one", "ws://two", seconds=5)
    for each in (first, second, first):
        hear_gateways(porter, sign_gateways(server.key, each))
    assert heard(porter) == ["ws://one", "ws://two"]


def test_gateways_of_another_key_or_for_another_node_or_with_other_bytes_are_refused(
    porter: Porter, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    mine = told(porter.config.node_id, "ws://one")
    signed = sign_gateways(server.key, mine)
    for false in (
        sign_gateways(Ed25519PrivateKey.generate(), mine),
        sign_gateways(server.key, told(uuid4(), "ws://one")),
        SignedGateways(payload=signed.payload.replace("one", "evil"), signature=signed.signature),
        SignedGateways(payload="{}", signature=signed.signature),
        sign_gateways(server.key, told(porter.config.node_id, "ws://removed", seconds=-3600)),
    ):
        hear_gateways(porter, false)
        assert porter.gateways is None
    assert caplog.text.count("Gateways were refused") == 5
    hear_gateways(porter, signed)
    assert heard(porter) == ["ws://one"]
