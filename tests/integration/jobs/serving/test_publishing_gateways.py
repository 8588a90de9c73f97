"""Agents whose replicas run already get the address of a gateway that is added later."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from django.utils import timezone

from jobs.models import Gateway
from jobs.sync.answers import answer_for
from marketplace.accounts.models import Organisation
from marketplace.foundation import signing
from marketplace.nodes.models import Node
from provider_agent.protocol import (
    FEATURE_CHECKS,
    FEATURE_GATEWAYS,
    GATEWAYS_MAX,
    HEADER_FEATURES,
    SignedGateways,
    SyncResponse,
    verify_gateways,
)
from tests.integration.jobs.serving.conftest import GATEWAY, bring_up, gateway_reports, launch, tick
from tests.integration.jobs.sync.syncing import message, post


def urls(signed: SignedGateways | None, node: Node) -> list[str]:
    """The addresses in a list that is the marketplace's and this node's."""
    assert signed is not None
    verified = verify_gateways(signing.server_public_key_hex(), signed)
    assert verified.node_id == node.pk
    return [place.url for place in verified.gateways]


def second_gateway() -> Gateway:
    """One that was started a moment ago."""
    return Gateway.objects.create(
        id=uuid4(), boot_id=uuid4(), url="wss://second.example", public_key="cd" * 32, seen_at=timezone.now()
    )


def test_agents_whose_replicas_run_receive_an_added_gateway_and_others_none(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    launch(alice)
    gateway_reports()
    tick()
    before = answer_for(bob.pk, message())
    assert urls(before.gateways, bob) == ["ws://127.0.0.1:8003"]
    second_gateway()
    after = answer_for(bob.pk, message())
    assert sorted(urls(after.gateways, bob)) == ["ws://127.0.0.1:8003", "wss://second.example"]
    assert after.version != before.version and len(after.version) == len(before.version)
    assert answer_for(bob.pk, message()).version == after.version
    assert answer_for(carol.pk, message()).gateways is None


def test_a_minute_without_web_takes_no_tunnel_away_and_a_day_does(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    gateway_reports()
    tick()
    bring_up(endpoint)
    second_gateway()
    Gateway.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    assert len(urls(answer_for(bob.pk, message()).gateways, bob)) == 2
    Gateway.objects.filter(pk=GATEWAY).update(seen_at=timezone.now() - timedelta(days=2))
    assert urls(answer_for(bob.pk, message()).gateways, bob) == ["wss://second.example"]
    Gateway.objects.update(seen_at=timezone.now() - timedelta(days=2))
    assert answer_for(bob.pk, message()).gateways is None, "no word changes nothing at the agent"


def test_of_too_many_gateways_the_same_are_sent_and_a_broken_row_is_passed_over(alice: Organisation, bob: Node) -> None:
    launch(alice)
    gateway_reports()
    tick()
    many = [second_gateway() for _ in range(GATEWAYS_MAX + 2)]
    broken = Gateway.objects.create(
        id=UUID(int=0), boot_id=uuid4(), url="wss://broken.example", public_key="no key", seen_at=timezone.now()
    )
    first = answer_for(bob.pk, message())
    assert len(urls(first.gateways, bob)) == GATEWAYS_MAX and "wss://broken.example" not in urls(first.gateways, bob)
    for each in (*many[-3:], broken):
        Gateway.objects.filter(pk=each.pk).update(seen_at=timezone.now())
        assert answer_for(bob.pk, message()).version == first.version


def test_an_older_agent_never_sees_the_field(alice: Organisation, bob: Node, url: str) -> None:
    launch(alice)
    gateway_reports()
    tick()
    body = message().model_dump_json().encode()
    assert "gateways" not in post(url, bob, body, **{HEADER_FEATURES: FEATURE_CHECKS}).json()
    answer = post(url, bob, body, **{HEADER_FEATURES: f"{FEATURE_CHECKS},{FEATURE_GATEWAYS}"})
    assert urls(SyncResponse.model_validate_json(answer.content).gateways, bob) == ["ws://127.0.0.1:8003"]
