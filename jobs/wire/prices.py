"""The prices of its token that a job had, and the one that it waits for."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from jobs.wire.base import Units, UnitsGiven, Wire


class JobPriceView(Wire):
    """A price at which a job went on from `locked_at` on, until the next; the first is its quote's.

    `reason`: quoted, renewed (moved too little to be changed), rose (less is held), agreed (it fell, no lower than
    agreed before), allowed (it fell, and the job file says requote), confirmed (it fell; the customer agreed).
    What `attempts_before` attempts were `charged` is at the prices before; the rest of the cap is held at this one.
    """

    usd_micros_per_token: Units
    source: str
    observed_at: datetime | None
    locked_at: datetime
    reason: str
    attempts_before: int = 0
    charged_usd_micros: int = 0
    charged_units: Units = 0


class PriceChangeView(Wire):
    """Why the price of its token keeps a job from being placed. It goes on when the price is back, or was confirmed.

    Without a price nobody knows one now. `can_confirm` is false then, and in escrow mode, where the hold cannot grow.
    """

    asset: str
    asset_scale: int
    locked_usd_micros_per_token: Units
    usd_micros_per_token: Units | None  # what POST /api/v1/jobs/{id}/confirm-price has to name
    source: str
    observed_at: datetime | None
    cap_units: Units  # held at the locked price, or to be
    cap_units_after: Units | None  # at the new one, for the same dollars
    can_confirm: bool
    since: datetime


class ConfirmPriceRequest(BaseModel):
    """POST /api/v1/jobs/{id}/confirm-price: the price that the job waits for, as `price_change` shows it."""

    model_config = ConfigDict(extra="forbid")
    usd_micros_per_token: UnitsGiven
