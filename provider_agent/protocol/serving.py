"""Where a replica is to be reached: the gateways to which its agent opens a tunnel.

They come with the assignment, and with each sync of a node that serves: a gateway that was added or moved is dialled by
the replicas that there are. Like an assignment the list is signed by the marketplace's key, over `souk-gateways-v1`, a
newline and its exact bytes, so that nobody between them can name a gateway of their own. It goes to agents that send
FEATURE_GATEWAYS in HEADER_FEATURES: one that does not know the field never sees it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.message import Message

FEATURE_GATEWAYS: Final = "gateways"
GATEWAYS_PREFIX: Final = b"souk-gateways-v1\n"
GATEWAYS_MAX = 8
PAYLOAD_CHARACTERS_MAX = 8192
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


class GatewayList(Message):
    """All gateways to which a node's replicas are to be announced."""

    node_id: UUID
    told_at: datetime
    gateways: list[GatewayPlace] = Field(min_length=1, max_length=GATEWAYS_MAX)


class SignedGateways(Message):
    """A list's exact bytes and the marketplace's Ed25519 signature over them."""

    payload: str = Field(max_length=PAYLOAD_CHARACTERS_MAX)
    signature: str
