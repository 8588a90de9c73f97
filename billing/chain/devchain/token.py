"""The development chain's token: its name, its decimals, and its assumed price."""

from __future__ import annotations

from typing import Final

TOKEN_CODE: Final = "TUSD"  # noqa: S105  a coin, not a secret
TOKEN_NAME: Final = "SOUK dev dollar"  # noqa: S105
TOKEN_DECIMALS: Final = 6
TOKEN_PRICE: Final = "1.00"  # noqa: S105  dollars; unless the operator says something else
MINTED: Final = 1_000_000 * 10**TOKEN_DECIMALS
