"""Keys for endpoints, and what was used with them."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from jobs.wire.base import Wire
from provider_agent.protocol import Moment, Whole

LIMIT_MAX = 10**9
BUDGET_USD_MICROS_MAX = 10**15
NAME_CHARACTERS_MAX = 120
ENDPOINT_IDS_MAX = 1000
# Days that can be requested: each has days before and after it, as the calendar's first and last have not.
DAY_FIRST = date(2000, 1, 1)
DAY_LAST = date(2999, 12, 31)

Group = Literal["day", "key", "model", "endpoint"]
Side = Literal["caller", "owner"]


class EndpointKeyRequest(BaseModel):
    """POST /api/v1/endpoint-keys: what is left out is not limited; without endpoint_ids all may be called."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=NAME_CHARACTERS_MAX)
    endpoint_ids: list[UUID] | None = Field(default=None, max_length=ENDPOINT_IDS_MAX)
    requests_per_minute: Whole | None = Field(default=None, ge=1, le=LIMIT_MAX)
    tokens_per_minute: Whole | None = Field(default=None, ge=1, le=LIMIT_MAX)
    in_flight_max: Whole | None = Field(default=None, ge=1, le=LIMIT_MAX)
    budget_usd_micros: Whole | None = Field(default=None, ge=1, le=BUDGET_USD_MICROS_MAX)
    budget_period: Literal["total", "month"] = "total"
    expires_at: Moment | None = None


class EndpointKeyView(Wire):
    """One key, without its text."""

    id: UUID
    name: str
    prefix: str
    kind: str
    endpoint_ids: list[UUID] | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    in_flight_max: int | None
    budget_usd_micros: int | None
    budget_period: str
    spent_usd_micros: int  # of the budget: in all, or this month
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


class NewEndpointKeyView(EndpointKeyView):
    """A new key; `key` is its text, shown this once."""

    key: str = Field(repr=False)


class EndpointKeyPage(Wire):
    """One page of keys, newest first."""

    next: str | None
    previous: str | None
    results: list[EndpointKeyView]


class UsageQuery(BaseModel):
    """GET /api/v1/usage: whose use, on which days (UTC, both included), grouped by what."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    since: date | None = Field(default=None, alias="from", ge=DAY_FIRST, le=DAY_LAST)
    until: date | None = Field(default=None, alias="to", ge=DAY_FIRST, le=DAY_LAST)
    group: Group = "day"
    side: Side = "caller"


class UsageLine(Wire):
    """The use of one day, key, model or endpoint."""

    group: str  # the day, the id, or the model's name
    name: str  # for people
    requests: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd_micros: int  # by the endpoints' prices; calls within an organisation only count against budgets


class UsageView(Wire):
    """What was used in a time, and what of it is paid between organisations."""

    since: date
    until: date
    group: Group
    side: Side
    lines: list[UsageLine]
    is_complete: bool  # false: there are more lines than are listed; the total has all
    total: UsageLine
    paid_usd_micros: int  # payments in this time: by the caller, or to the owner after the fee
    due_usd_micros: int  # not paid yet, of any time
