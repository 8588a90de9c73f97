"""One price, and exact arithmetic with it: integers only, up to 256 bits, rounded the way that the caller names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from billing.errors import AmountInvalid, AmountTooLarge
from billing.fields import AMOUNT_MAX


@dataclass(frozen=True)
class Price:
    """What one whole token costs: `usd_micros_per_token` micro-USD buy 10**scale base units.

    The price is precise to one micro-USD a whole token; the conversions below are exact in it. For one price,
    usd_micros(units_down(x)) <= x <= usd_micros_up(units_up(x)).
    """

    asset_id: int
    usd_micros_per_token: int
    scale: int
    source: str
    observed_at: datetime

    def __post_init__(self) -> None:
        if not 0 < self.usd_micros_per_token <= AMOUNT_MAX or self.scale < 0:
            raise AmountInvalid(value=str(self.usd_micros_per_token))

    def units_down(self, usd_micros: int) -> int:
        """Base units worth at most these dollars: what may be paid out for them."""
        return _in_range(_counted(usd_micros) * 10**self.scale // self.usd_micros_per_token)

    def units_up(self, usd_micros: int) -> int:
        """Base units worth at least these dollars: what has to be set aside to cover them."""
        return _in_range(-(-_counted(usd_micros) * 10**self.scale // self.usd_micros_per_token))

    def usd_micros(self, units: int) -> int:
        """What base units are worth, rounded down."""
        return _in_range(_counted(units) * self.usd_micros_per_token // 10**self.scale)

    def usd_micros_up(self, units: int) -> int:
        """What base units are worth, rounded up."""
        return _in_range(-(-_counted(units) * self.usd_micros_per_token // 10**self.scale))


def _counted(amount: int) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise AmountInvalid(value=str(amount))
    return _in_range(amount)


def _in_range(amount: int) -> int:
    if amount > AMOUNT_MAX:
        raise AmountTooLarge()
    return amount
