"""The gateways that are heard of: where agents open their tunnels, and what each sees."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from jobs.models import EndpointVersion, Gateway
from marketplace.foundation import clock
from provider_agent.protocol import GATEWAYS_MAX, GatewayPlace, ServePlace

HEARD_SECONDS_MAX = 60  # a gateway that said nothing for so long is told to no agent


def live_gateways() -> list[Gateway]:
    """Those that said lately where they are, in a stable order."""
    fresh = clock.now() - timedelta(seconds=HEARD_SECONDS_MAX)
    found = Gateway.objects.filter(seen_at__gt=fresh).exclude(url="").exclude(public_key="").order_by("id")
    return list(found[:GATEWAYS_MAX])


def place_of(version: EndpointVersion) -> ServePlace:
    """Where the agent of one replica opens its tunnels."""
    return ServePlace(
        endpoint_id=version.endpoint_id,
        gateways=[GatewayPlace(url=each.url, public_key=each.public_key) for each in live_gateways()],
        drain_seconds=settings.SOUK_DRAIN_SECONDS,
    )
