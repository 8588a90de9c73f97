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


class PayoutSettingsView(Wire):
    """Where one asset of GET /api/v1/payout-settings goes; a changed place waits until `next_from`"""

    asset: str
    rail: str
    destination: str
    next_rail: str = ""
    next_destination: str = ""
    next_from: datetime | None = None
    schedule: str
    minimum: Units
    due_at: datetime | None
    failures: int
    last_error: str
    version: int


class PayoutView(Wire):
    """One payout of GET /api/v1/payouts"""

    id: UUID
    created_at: datetime
    asset: str
    amount: Units
    rail: str
    destination: str
    state: str
    external_id: str
    last_error: str
    bank_state: str = ""  # of a confirmed payout by Stripe: where it is on its way to the bank
    bank_message: str = ""
    bank_next_at: datetime | None = None
    closed_at: datetime | None


class ProofView(Wire):
    """GET /api/v1/payouts/{id}/proof: what claims a payout from the contract, by anybody, for the wallet"""

    chain_id: int
    contract: str
    token: str
    wallet: str
    cumulative: Units
    merkle_root: str
    proof: list[str]
    call_data: str


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
