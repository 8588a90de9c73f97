"""What a job pays with, at the price that its quote locked. Pure: the server counts with it, the client checks with it.

Budgets, ceilings and rates stay in micro-USD on the job; money moves in base units of the asset. A dollar is a million
of its own base units, so for USD every conversion is the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from provider_agent.protocol import parse_units, show_units
from provider_agent.protocol.money.amounts import USD

USD_SCALE: Final = 6
USD_MICROS_PER_DOLLAR: Final = 10**USD_SCALE
# A rate of fewer base units an hour would be rounded by more than a thousandth, always at the provider's cost.
RATE_UNITS_MIN: Final = 1000

__all__ = ["RATE_UNITS_MIN", "USD", "USD_MICROS_PER_DOLLAR", "USD_SCALE", "Payment", "parse_units", "show_units"]


@dataclass(frozen=True)
class Payment:
    """An asset, and what one whole token of it costs; `usd_micros_per_token` micro-USD are 10**scale base units."""

    asset: str = USD
    scale: int = USD_SCALE
    usd_micros_per_token: int = USD_MICROS_PER_DOLLAR
    source: str = ""
    observed_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.usd_micros_per_token <= 0 or self.scale < 0:
            raise ValueError(f"{self.usd_micros_per_token} micro-USD for 10^{self.scale} base units is no price")
        if self.is_usd and (self.scale, self.usd_micros_per_token) != (USD_SCALE, USD_MICROS_PER_DOLLAR):
            raise ValueError("a dollar costs a dollar")

    @property
    def is_usd(self) -> bool:
        """Dollars need no price."""
        return self.asset == USD

    def units_down(self, usd_micros: int) -> int:
        """Base units worth at most these dollars: what may be charged for them."""
        return usd_micros * self._whole // self.usd_micros_per_token

    def units_up(self, usd_micros: int) -> int:
        """Base units worth at least these dollars: what has to be held to cover them."""
        return -(-usd_micros * self._whole // self.usd_micros_per_token)

    def usd_micros(self, units: int) -> int:
        """What base units are worth at the locked price, rounded down."""
        return units * self.usd_micros_per_token // self._whole

    def at(self, usd_micros_per_token: int) -> Payment:
        """The same asset at another price."""
        return replace(self, usd_micros_per_token=usd_micros_per_token)

    @property
    def _whole(self) -> int:
        whole: int = 10**self.scale
        return whole

    def show(self, units: int) -> str:
        """An amount as people write it, exactly: "$2.50", "1.5 TUSD"."""
        return show_units(units, asset=self.asset, scale=self.scale)
