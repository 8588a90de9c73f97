"""How a charge is divided between the marketplace, as its fee, and the provider."""

from __future__ import annotations

from billing.money import BPS_WHOLE


def split_fee(charged: int, fee_bps: int) -> tuple[int, int]:
    """(fee, rest) with fee + rest == charged exactly; the fee is rounded down."""
    if charged < 0 or not 0 <= fee_bps <= BPS_WHOLE:
        raise ValueError(f"no fee of {fee_bps} basis points on {charged}")
    fee = charged * fee_bps // BPS_WHOLE
    return fee, charged - fee
