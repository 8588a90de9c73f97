"""Where a replica is to be reached: the gateways to which its agent opens a tunnel."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from provider_agent.protocol.message import Message

GATEWAYS_MAX = 8
DRAIN_SECONDS_MAX = 3600


class GatewayPlace(Message):
    """One gateway: its address, and the Ed25519 key by which it proves that it is the one."""

    url: str = Field(max_length=300)  # ws:// or wss://, without a path
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")


class ServePlace(Message):
    """What a serving lease's agent opens tunnels for, and how long its requests may take to end when it is stopped."""

    endpoint_id: UUID
    gateways: list[GatewayPlace] = Field(default_factory=list, max_length=GATEWAYS_MAX)
    drain_seconds: int = Field(default=60, ge=1, le=DRAIN_SECONDS_MAX)
