"""What providers have: devices and terms, a node's links, and how a node joins."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from jobs.wire.base import Wire


class DeviceView(Wire):
    """A device of an offer or a node, with what was measured of it."""

    kind: str
    model: str
    memory_mib: int
    flops_per_second: dict[str, float]
    compute_capability: str = ""  # empty: not known
    cuda: str = ""  # the newest that its driver supports


class TermsView(Wire):
    """On which terms a node's devices may be rented."""

    price_usd_micros_per_device_hour: int
    seconds_min: int
    seconds_max: int
    region: str
    available_until: datetime | None


class OfferView(TermsView):
    """GET /api/v1/offers"""

    id: UUID
    node_id: UUID
    node_name: str
    provider: str
    executor: str
    isolation: str = "none"
    allows_strangers: bool = False
    egress: bool = False
    lent: list[str] = []
    devices: list[DeviceView]
    devices_busy: int = 0


class LinkView(Wire):
    """What lies between a node and another one of its fabric, as both measured it."""

    node_id: UUID
    node_name: str
    condition: Literal["good", "failed", "unmeasured"]
    round_trip_us: int | None
    bandwidth_bytes_per_second: int | None  # of the slower direction
    measured_at: datetime | None
    why: str


class NodeView(Wire):
    """GET /api/v1/provider/nodes"""

    id: UUID
    name: str
    state: str
    executor: str
    receipt_address: str = ""  # of the key that signs its receipts
    last_seen_at: datetime | None
    devices: list[DeviceView]
    offer: TermsView | None
    fabric: str = ""
    links: list[LinkView] = []


class ProviderView(Wire):
    """Answer of POST /api/v1/provider"""

    id: UUID
    display_name: str


class EnrolmentTokenView(Wire):
    """Answer of POST /api/v1/provider/enrolment-tokens: shown once."""

    token: str = Field(repr=False)
    expires_at: datetime
