"""An agent connects to the gateways that the marketplace lists, and to no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.context import AgentContext
from provider_agent.lease.serving import accept_gateways
from provider_agent.protocol import GatewayList, GatewayPlace, SignedGateways, sign_gateways
from tests.integration.provider_agent.fake_server import FakeServer


def gateways_at(node_id: UUID, *urls: str, seconds: float = 0) -> GatewayList:
    """Gateways at these addresses."""
    places = [GatewayPlace(url=url, public_key="ab" * 32) for url in urls]
    return GatewayList(node_id=node_id, told_at=datetime.now(UTC) + timedelta(seconds=seconds), gateways=places)


def accepted_urls(context: AgentContext) -> list[str]:
    """Where the replicas here are to be announced."""
    return [place.url for place in context.gateways.gateways] if context.gateways else []


def test_newer_gateways_take_the_place_of_older_ones_and_never_the_other_way(
    context: AgentContext, server: FakeServer
) -> None:
    node_id = context.config.node_id
    accept_gateways(context, None)
    assert context.gateways is None
    first, second = gateways_at(node_id, "ws://one"), gateways_at(node_id, "ws://one", "ws://two", seconds=5)
    for each in (first, second, first):
        accept_gateways(context, sign_gateways(server.key, each))
    assert accepted_urls(context) == ["ws://one", "ws://two"]


def test_gateways_of_another_key_or_for_another_node_or_with_other_bytes_are_refused(
    context: AgentContext, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    mine = gateways_at(context.config.node_id, "ws://one")
    signed = sign_gateways(server.key, mine)
    for false in (
        sign_gateways(Ed25519PrivateKey.generate(), mine),
        sign_gateways(server.key, gateways_at(uuid4(), "ws://one")),
        SignedGateways(payload=signed.payload.replace("one", "evil"), signature=signed.signature),
        SignedGateways(payload="{}", signature=signed.signature),
        sign_gateways(server.key, gateways_at(context.config.node_id, "ws://removed", seconds=-3600)),
    ):
        accept_gateways(context, false)
        assert context.gateways is None
    assert caplog.text.count("Gateways were refused") == 5
    accept_gateways(context, signed)
    assert accepted_urls(context) == ["ws://one"]
