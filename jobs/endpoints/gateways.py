"""Live gateways, and the list of them that agents get to open their tunnels."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings

from jobs.models import EndpointVersion, Gateway, Lease
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import GATEWAYS_MAX, GatewayList, GatewayPlace, ServePlace

log = logging.getLogger(__name__)

LIVE_SECONDS_MAX = 60  # no replica is started for a gateway that has not reported for so long
# Agents' lists leave out a gateway that has not reported for a day. A minute would be too short: while the web process
# is away no gateway can report, and the tunnels, which do not need the web process, must stay.
KNOWN_SECONDS_MAX = 24 * 3600


def live_gateways() -> list[Gateway]:
    """Those that lately reported an address, in a stable order."""
    fresh = clock.now() - timedelta(seconds=LIVE_SECONDS_MAX)
    found = Gateway.objects.filter(seen_at__gt=fresh).exclude(url="").exclude(public_key="").order_by("id")
    return list(found[:GATEWAYS_MAX])


def known_gateways() -> list[GatewayPlace]:
    """Where agents announce running replicas: gateways that reported lately, then those that may be restarting."""
    now = clock.now()
    known = Gateway.objects.filter(seen_at__gt=now - timedelta(seconds=KNOWN_SECONDS_MAX)).exclude(url="")
    lately = now - timedelta(seconds=LIVE_SECONDS_MAX)
    # Not sorted by the exact moment: with more than GATEWAYS_MAX, each call would return others.
    ordered = sorted(known, key=lambda gateway: (gateway.seen_at < lately, gateway.pk))
    return list(filter(None, map(_place, ordered)))[:GATEWAYS_MAX]


def _place(gateway: Gateway) -> GatewayPlace | None:
    """None for a gateway that reported an invalid address or key: it must not break the answers to nodes."""
    try:
        return GatewayPlace(url=gateway.url, public_key=gateway.public_key)
    except ValueError:
        log.warning("A gateway's address or key is none.", extra={"gateway_id": str(gateway.pk)})
        return None


def gateway_list(node: Node) -> GatewayList | None:
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
