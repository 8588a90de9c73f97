"""What a node measures of itself, and sends with a beat."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.bounds import Figure
from provider_agent.protocol.limits import DEVICES_PER_NODE_MAX
from provider_agent.protocol.message import Account

SERIES_MAX: Final = 24  # figures of one node, device or lease

SeriesName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Figures = Annotated[dict[SeriesName, Figure], Field(max_length=SERIES_MAX)]
DeviceName = Annotated[str, Field(min_length=1, max_length=96, pattern=r"^[^\x00-\x1f]*$")]


class Load(Account):
    """What a node measured of itself, with a beat; names are the series' names, of which each is kept by the minute."""

    node: Figures = Field(default_factory=dict)
    devices: dict[DeviceName, Figures] = Field(default_factory=dict, max_length=DEVICES_PER_NODE_MAX)
    leases: dict[UUID, Figures] = Field(default_factory=dict, max_length=DEVICES_PER_NODE_MAX)
