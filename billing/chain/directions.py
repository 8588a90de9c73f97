"""Which events of the escrow contract tell of tokens that came in or left."""

from __future__ import annotations

from typing import Final

INWARD: Final = frozenset({"CreditsBought", "Deposited", "Staked"})
OUTWARD: Final = frozenset({"Withdrawn", "Claimed", "Unstaked"})
