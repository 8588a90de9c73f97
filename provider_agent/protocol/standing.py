"""What keeps a node in the market: its provider's desired settings, its pay, and what it measures of itself."""

from __future__ import annotations

from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import AwareDatetime, Field, FiniteFloat, model_validator

from provider_agent.protocol.limits import DEVICES_PER_NODE_MAX
from provider_agent.protocol.message import Account, Message

REASON_CHARACTERS_MAX: Final = 200
MINUTES_PER_DAY: Final = 24 * 60
HOURS_MAX: Final = 64  # spans of a week
AWAY_MAX: Final = 32
SERIES_MAX: Final = 24  # figures of one node, device or lease
PRICE_USD_MICROS_MAX: Final = 1_000_000_000

SeriesName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Figures = Annotated[dict[SeriesName, FiniteFloat], Field(max_length=SERIES_MAX)]
DeviceName = Annotated[str, Field(min_length=1, max_length=96)]


class DrainRequest(Message):
    """POST /api/agent/v1/drain: finish what runs, take nothing new. Repeating it is harmless."""

    reason: str = Field(default="", max_length=REASON_CHARACTERS_MAX)  # for the provider and the operator to read


class ResumeRequest(Message):
    """POST /api/agent/v1/resume: take new work again. Repeating it is harmless."""


class PriceRequest(Message):
    """POST /api/agent/v1/price: of a device and hour, from the next lease on. Repeating it is harmless."""

    price_usd_micros_per_device_hour: int = Field(gt=0, le=PRICE_USD_MICROS_MAX)


class NodeStanding(Message):
    """How the node stands in the market, after a request or when it asks (GET /api/agent/v1/standing)."""

    node_state: str
    drain_reason: str
    price_usd_micros_per_device_hour: int | None  # None: no open offer


class Earnings(Message):
    """GET /api/agent/v1/earnings: the provider's part, after the marketplace's fee. Days are UTC's."""

    today_usd_micros: int
    week_usd_micros: int  # the last seven days, today among them
    open_usd_micros: int  # of leases that still run: signed by the node and seen by the server
    today_leases: int
    week_leases: int
    open_leases: int
    fee_bps: int


class Load(Account):
    """What a node measured of itself, with a beat; names are the series' names, of which each is kept by the minute."""

    node: Figures = Field(default_factory=dict)
    devices: dict[DeviceName, Figures] = Field(default_factory=dict, max_length=DEVICES_PER_NODE_MAX)
    leases: dict[UUID, Figures] = Field(default_factory=dict, max_length=DEVICES_PER_NODE_MAX)


class WeeklyHours(Message):
    """A span of one day of the week (0: Monday), in minutes of the node's own day; past midnight it is two spans."""

    day: int = Field(ge=0, le=6)
    begins: int = Field(ge=0, lt=MINUTES_PER_DAY)
    ends: int = Field(gt=0, le=MINUTES_PER_DAY)

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.ends <= self.begins:
            raise ValueError("hours must end after they begin; hours past midnight are two spans")
        return self


class Away(Message):
    """A window in which the node is not there, declared in advance."""

    begins_at: AwareDatetime
    ends_at: AwareDatetime

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.ends_at <= self.begins_at:
            raise ValueError("a window must end after it begins")
        return self


class Schedule(Message):
    """When the node is there (`schedule`). No hours: always. The whole is sent each time."""

    timezone: str = Field(default="UTC", pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,63}$")
    hours: list[WeeklyHours] = Field(default_factory=list, max_length=HOURS_MAX)
    away: list[Away] = Field(default_factory=list, max_length=AWAY_MAX)
