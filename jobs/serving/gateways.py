"""The gateways that are heard of: where agents open their tunnels, and what each sees."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings

from jobs.models import EndpointVersion, Gateway, Lease
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import GATEWAYS_MAX, GatewayList, GatewayPlace, ServePlace

log = logging.getLogger(__name__)

HEARD_SECONDS_MAX = 60  # for one that said nothing for so long no replica is started
# Nor is an agent told of one that said nothing for a day. Not of a minute: where web is away for that long all gateways
# look as if they were gone, and the tunnels, which need no web, must stay.
KNOWN_SECONDS_MAX = 24 * 3600


def live_gateways() -> list[Gateway]:
    """Those that said lately where they are, in a stable order."""
    fresh = clock.now() - timedelta(seconds=HEARD_SECONDS_MAX)
    found = Gateway.objects.filter(seen_at__gt=fresh).exclude(url="").exclude(public_key="").order_by("id")
    return list(found[:GATEWAYS_MAX])


def known_gateways() -> list[GatewayPlace]:
    """Where agents announce the replicas that run: those heard of lately first, and those that may be restarting."""
    now = clock.now()
    known = Gateway.objects.filter(seen_at__gt=now - timedelta(seconds=KNOWN_SECONDS_MAX)).exclude(url="")
    lately = now - timedelta(seconds=HEARD_SECONDS_MAX)
    # Not by the very moment: with more than are told, others would be among them at each look.
    ordered = sorted(known, key=lambda gateway: (gateway.seen_at < lately, gateway.pk))
    return list(filter(None, map(_place, ordered)))[:GATEWAYS_MAX]


def _place(gateway: Gateway) -> GatewayPlace | None:
    """None for one whose word about itself is no address and key: it must not keep nodes from being answered."""
    try:
        return GatewayPlace(url=gateway.url, public_key=gateway.public_key)
    except ValueError:
        log.warning("A gateway's address or key is none.", extra={"gateway_id": str(gateway.pk)})
        return None


def tell_gateways(node: Node) -> GatewayList | None:
    """For a node on which replicas run; None for any other, and where no gateway is known."""
    serves = Lease.objects.live().filter(node=node, attempt__replica__isnull=False).exists()
    places = known_gateways() if serves else []
    return GatewayList(node_id=node.pk, told_at=clock.now(), gateways=places) if places else None


def place_of(version: EndpointVersion) -> ServePlace:
    """Where the agent of one replica opens its tunnels."""
    return ServePlace(
        endpoint_id=version.endpoint_id,
        gateways=list(filter(None, map(_place, live_gateways()))),
        drain_seconds=settings.SOUK_DRAIN_SECONDS,
    )
