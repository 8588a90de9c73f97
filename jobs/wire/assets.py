"""What a job may be paid in, and the wallets that are paid on chain."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from billing.proofs.escrow import SignedDelegation
from jobs.wire.base import Units, Wire
from provider_agent.protocol import ZERO_ADDRESS

ASSET_CHARACTERS_MAX = 16  # of its code


class AssetView(Wire):
    """GET /api/v1/assets: dollars, and each token with its chain, contracts and present price."""

    code: str
    scale: int  # decimals of its base unit
    chain_id: int | None
    token: str = ""  # the ERC-20's address
    contract: str = ZERO_ADDRESS  # the escrow that holds it; zero: none
    usd_micros_per_token: Units | None  # None: no price that could be quoted now
    price_source: str = ""
    price_observed_at: datetime | None = None
    modes: list[str]  # how a job file may pay with it


class AssetList(Wire):
    """Dollars first."""

    results: list[AssetView]


class DelegationRequest(BaseModel):
    """POST /api/v1/provider/delegations: the payout wallet lets a node's receipt key speak for it."""

    model_config = ConfigDict(extra="forbid")
    node_id: UUID
    asset: str = Field(max_length=ASSET_CHARACTERS_MAX)
    signed: SignedDelegation


class DelegationView(Wire):
    """A wallet's word for a receipt key on one contract, as it was signed."""

    id: UUID
    node_id: UUID
    node_name: str
    asset: str
    chain_id: int
    contract: str
    wallet: str
    receipt_address: str
    not_after: datetime
    nonce: Units
    signature: str
    created_at: datetime
    revoked_at: datetime | None


class DelegationList(Wire):
    """Newest first, revoked ones too."""

    results: list[DelegationView]
