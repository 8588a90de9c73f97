"""Which events of the escrow contract report tokens that came in or left."""

from __future__ import annotations

from typing import Final

INWARD: Final = frozenset({"CreditsBought", "Deposited", "Staked"})
OUTWARD: Final = frozenset({"Withdrawn", "Claimed", "Unstaked"})
