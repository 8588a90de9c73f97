"""What a node's provider wants of it: drain, resume, price, hours; and how the node stands after it."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, model_validator

from provider_agent.protocol.bounds import PRICE_USD_MICROS_MAX, Moment, Whole
from provider_agent.protocol.message import Message

REASON_CHARACTERS_MAX: Final = 200
MINUTES_PER_DAY: Final = 24 * 60
HOURS_MAX: Final = 64  # spans of a week
AWAY_MAX: Final = 32


class DrainRequest(Message):
    """POST /api/agent/v1/drain: finish what runs, take nothing new. Repeating it is harmless."""

    reason: str = Field(default="", max_length=REASON_CHARACTERS_MAX)  # for the provider and the operator to read


class ResumeRequest(Message):
    """POST /api/agent/v1/resume: take new work again. Repeating it is harmless."""


class PriceRequest(Message):
    """POST /api/agent/v1/price: of a device and hour, from the next lease on. Repeating it is harmless."""

    price_usd_micros_per_device_hour: Whole = Field(gt=0, le=PRICE_USD_MICROS_MAX)


class NodeStanding(Message):
    """How the node stands in the market, after a request or when it asks (GET /api/agent/v1/standing)."""

    node_state: str
    drain_reason: str
    price_usd_micros_per_device_hour: int | None  # None: no open offer


class WeeklyHours(Message):
    """A span of one day of the week (0: Monday), in minutes of the node's own day; past midnight it is two spans."""

    day: Whole = Field(ge=0, le=6)
    begins: Whole = Field(ge=0, lt=MINUTES_PER_DAY)
    ends: Whole = Field(gt=0, le=MINUTES_PER_DAY)

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.ends <= self.begins:
            raise ValueError("hours must end after they begin; hours past midnight are two spans")
        return self


class Away(Message):
    """A window in which the node is not there, declared in advance."""

    begins_at: Moment
    ends_at: Moment

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
