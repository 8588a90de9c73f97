"""What a provider's breach costs it, beyond the refund that every fault of a provider already means.

    reason                of what the lease claimed   at least    at most     of it to the customer
    equivocation          all                         $1          $100        all
    node_quarantined      half                        -           $20         all
    false_reason          half                        -           $20         all

Every other reason has no penalty: the node pays by not being paid for what was lost, and by its failure rate. A drain
has none either: a provider may take its node back, and who closes at the hours that it published breaks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from billing.money import BPS_WHOLE, MICROS_PER_USD
from billing.prices import Price

EQUIVOCATION: Final = "equivocation"


@dataclass(frozen=True)
class Penalty:
    """A share of what the lease claimed, between two bounds in dollars, and how much of it the customer gets."""

    bps: int
    usd_micros_min: int
    usd_micros_max: int
    customer_bps: int = BPS_WHOLE

    def amount(self, claimed: int, price: Price) -> int:
        """In base units of the price's asset, rounded down: in favour of who is fined."""
        low, high = price.units_down(self.usd_micros_min), price.units_down(self.usd_micros_max)
        return min(max(claimed * self.bps // BPS_WHOLE, low), high)


PENALTIES: Final[Mapping[str, Penalty]] = {
    EQUIVOCATION: Penalty(BPS_WHOLE, MICROS_PER_USD, 100 * MICROS_PER_USD),
    "node_quarantined": Penalty(BPS_WHOLE // 2, 0, 20 * MICROS_PER_USD),
    "false_reason": Penalty(BPS_WHOLE // 2, 0, 20 * MICROS_PER_USD),
}
