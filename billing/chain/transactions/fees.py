"""What we offer for gas: enough to be mined, never above the chain's limit, and more each time it was not enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BUMP_NUMERATOR: Final = 1125  # nodes require +10 %, some +12.5 %
BUMP_DENOMINATOR: Final = 1000
BASE_FEE_FACTOR: Final = 2  # the base fee may rise by an eighth a block: this lasts for five full ones


@dataclass(frozen=True)
class Fees:
    """EIP-1559's two fields, a unit of gas."""

    max_fee: int
    priority_fee: int

    def as_json(self) -> dict[str, str]:
        return {"max_fee": str(self.max_fee), "priority_fee": str(self.priority_fee)}

    @classmethod
    def from_json(cls, stored: dict[str, str]) -> Fees:
        return cls(int(stored["max_fee"]), int(stored["priority_fee"]))


def first_offer(base_fee: int, priority_fee: int, *, limit: int) -> Fees | None:
    """What is usual now; None while the chain costs more than the limit."""
    if base_fee + 1 > limit:
        return None
    tip = max(1, priority_fee)  # counted in `most`, too: nodes reject a priority fee above the maximum fee
    most = min(BASE_FEE_FACTOR * base_fee + tip, limit)
    return Fees(most, min(tip, most - base_fee))


def next_offer(last: Fees, base_fee: int, priority_fee: int, *, limit: int) -> Fees | None:
    """Both fields at least 12.5 % above the last, or what is usual now if that is more; None above the limit."""
    usual = first_offer(base_fee, priority_fee, limit=limit)
    most, tip = _bumped(last.max_fee), _bumped(last.priority_fee)
    if usual is not None:
        most, tip = max(most, usual.max_fee), max(tip, usual.priority_fee)
    most = max(most, tip)
    return Fees(most, tip) if most <= limit else None


def _bumped(fee: int) -> int:
    return -(-fee * BUMP_NUMERATOR // BUMP_DENOMINATOR)
