"""How the marketplace has two nodes of one fabric measure what lies between them.

    demand    SyncResponse.link, to both at once: who listens, who dials, and a secret that only these two were given
    probe     between the nodes alone; see provider_agent/node/fabric_probe.py
    report    POST /api/agent/v1/links/ID, one from each; repeating one changes nothing

The demand is sent only to agents that send FEATURE_LINKS in HEADER_FEATURES: one that does not know the field never
sees it. The secret is good for one probe and for nothing else.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.bounds import Whole
from provider_agent.protocol.message import Message

FEATURE_LINKS: Final = "links"

# TCP ports of a fabric address on which probes listen: below the ephemeral range, and named in the provider's guide, so
# that a firewall between the nodes can let them through.
PROBE_PORT_FIRST: Final = 27100
PROBE_PORT_LAST: Final = 27299
PROBE_SECRET_BYTES: Final = 32
LINK_WHY_CHARACTERS_MAX: Final = 300
ROUND_TRIP_US_MAX: Final = 60_000_000
BYTES_PER_SECOND_MAX: Final = 10**13

# Neither control characters nor what is invisible, breaks lines or turns the direction of writing: people read it.
UNSEEN: Final = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
OneLine = Annotated[str, Field(max_length=LINK_WHY_CHARACTERS_MAX, pattern=rf"^[^{UNSEEN}]*$")]


class LinkDemand(Message):
    """Measure the way to one peer. Both sides listen on a port of their own; the dialler dials first."""

    probe_id: UUID
    role: Literal["listen", "dial"]
    peer_name: str = Field(max_length=64)
    address: str = Field(max_length=64)  # this node's own, as it enrolled it; the agent refuses another
    port: int = Field(ge=PROBE_PORT_FIRST, le=PROBE_PORT_LAST)
    peer_address: str = Field(max_length=64)
    peer_port: int = Field(ge=PROBE_PORT_FIRST, le=PROBE_PORT_LAST)
    secret: str = Field(pattern=rf"^[0-9a-f]{{{2 * PROBE_SECRET_BYTES}}}$", repr=False)


class LinkReport(Message):
    """What one side saw. Figures are missing where it came to none."""

    dialled: bool = False  # this node reached the peer, and each proved to be who was meant
    was_dialled: bool = False  # the peer reached this node, and the same
    round_trip_us: Whole | None = Field(default=None, ge=0, le=ROUND_TRIP_US_MAX)  # median of the pings
    sent_bytes_per_second: Whole | None = Field(default=None, ge=0, le=BYTES_PER_SECOND_MAX)
    received_bytes_per_second: Whole | None = Field(default=None, ge=0, le=BYTES_PER_SECOND_MAX)
    dial_why: OneLine = ""  # why it did not reach the peer, for the provider to read
    listen_why: OneLine = ""  # why the peer did not reach it

    @property
    def why(self) -> str:
        """What went wrong, each thing once."""
        return "; ".join(dict.fromkeys(filter(None, (self.dial_why, self.listen_why))))
