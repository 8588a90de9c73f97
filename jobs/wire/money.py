"""What somebody owns, by asset, and every movement of it; amounts are base units of the asset."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from jobs.wire.base import Units, Wire


class AssetBalanceView(Wire):
    """One asset of GET /api/v1/balance"""

    asset: str
    scale: int
    available: Units
    promotion: Units
    held: Units
    provider_pending: Units
    provider_available: Units
    provider_reserve: Units
    payout_clearing: Units


class BalanceView(Wire):
    """GET /api/v1/balance"""

    available_usd_micros: int
    held_usd_micros: int
    provider_pending_usd_micros: int
    provider_available_usd_micros: int
    assets: list[AssetBalanceView] = []  # dollars first

    def of(self, asset: str) -> AssetBalanceView | None:
        """What there is of one asset; None where there never was any."""
        return next((each for each in self.assets if each.asset == asset), None)


class DepositView(Wire):
    """One deposit of GET /api/v1/deposits"""

    id: UUID
    created_at: datetime
    asset: str
    scale: int
    amount: Units
    rail: str
    reference: str  # of a chain: its id, the transaction's hash, the log's index


class TransferView(Wire):
    """One movement of GET /api/v1/transfers"""

    id: UUID
    created_at: datetime
    code: str
    asset: str
    scale: int
    amount: Units
    mode: str
    change: Units  # by how much it changed what the asker owns
    debit_kind: str
    credit_kind: str
    job_id: UUID | None
    hash: str | None
