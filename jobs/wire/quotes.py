"""A plan for a spec, and the price promise that is made of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from jobs.wire.base import Units, Wire


class Candidate(Wire):
    """A place where the job fits, with the arithmetic of its cost to complete."""

    node_ids: list[UUID]
    node_names: list[str]
    device_model: str
    devices: int  # in all
    region: str
    price_usd_micros_per_device_hour: int
    flops_per_second: float  # measured, all devices together, times scaling efficiency
    work_seconds: float | None  # None: the job declares no work
    startup_seconds: float
    rework_seconds: float
    expected_seconds: float | None
    expected_usd_micros: int | None
    usd_micros_per_exaflop: float  # the ranking where no work is declared
    is_chosen: bool = False
    is_free: bool = True  # False: it fits, but its devices are taken now; the job would wait
    device_kind: str = ""
    device_memory_mib: int = 0
    # Measured, of the slowest device in the type that the job computes in, and of the slowest link; 0: not known.
    device_flops_per_second: float = 0.0
    device_memory_bytes_per_second: float = 0.0
    link_bytes_per_second: float = 0.0
    link_round_trip_seconds: float = 0.0


class Exclusion(Wire):
    """Why some nodes do not fit: one reason, and how many."""

    code: str  # "memory", "model", "price", "busy", "offline", ...
    nodes: int
    message: str  # "300 lack 48 GB of memory per device"


class Fix(Wire):
    """The nearest change that would make nodes fit."""

    field: str  # "budget.max_per_gpu_hour"
    value: str  # "0.45"
    nodes: int
    message: str  # "+$0.05 per GPU-hour adds 9 nodes"


class Plan(Wire):
    """What the matcher says of a spec: where it fits, best first, and why elsewhere not."""

    nodes_seen: int
    candidates: list[Candidate]
    exclusions: list[Exclusion]
    fixes: list[Fix]
    work_flops: float | None


class EvaluationTerms(Wire):
    """A job of kind eval that the marketplace submits by itself when the quoted training has completed."""

    name: str
    cap_usd_micros: int  # beyond the training's own: its price is quoted when it is submitted


class QuoteRequest(BaseModel):
    """POST /api/v1/quotes"""

    model_config = ConfigDict(extra="forbid")
    spec: dict[str, Any]


class EscrowTerms(Wire):
    """What a wallet signs to hold a job's money in the contract itself (`payment.mode: escrow`).

    The job will have the id `job_id`: it is signed before the job is there. The hold is the quote's `cap_units`.
    """

    job_id: UUID
    chain_id: int
    contract: str  # the escrow, and the EIP-712 domain
    token: str
    rate_ceiling_units_per_hour: Units  # of one lease, all its devices
    parallel_leases: int = 1  # that bill at the same time: one a node
    providers: list[str] = Field(default_factory=list)  # wallets of those who may be paid; empty: of any
    deadline_min: int  # unix seconds: an earlier deadline leaves no time to run and settle
    deadline_max: int
    challenge_seconds: int  # how long what a lease cost can be contested before its provider has it
    grace_seconds: int  # after the deadline the platform may still settle so long; then anybody gives the rest back
    close_seconds: int = 0  # after the job's end, until what is left of the hold goes back
    fee_bps: int  # the contract's own, out of the provider's part


class QuoteView(Wire):
    """A price promise; `quote_id` is None when nothing fits, and then the plan says why and what would help.

    Where a token pays, the promise includes its price: `cap_units` are held, whatever the token costs later. A job that
    waits long for a node may ask for more of it, and then waits for its customer's word. Of dollars the units are
    micro-dollars.
    """

    quote_id: UUID | None
    spec_hash: str
    plan: Plan
    price_ceiling_usd_micros: int | None
    expected_usd_micros: int | None
    expected_seconds: float | None
    cap_usd_micros: int | None
    expires_at: datetime | None
    signature: str | None
    balance_usd_micros: int  # of the asset that pays, at the quote's price
    asset: str = "USD"
    asset_scale: int = 6  # decimals of its base unit
    usd_micros_per_token: Units = 1_000_000  # of one whole token
    price_source: str = ""
    price_observed_at: datetime | None = None
    cap_units: Units | None = None
    balance_units: Units | None = None  # None in escrow mode: the wallet's money is on the chain, not here
    escrow: EscrowTerms | None = None  # only in escrow mode, and where something fits
    evaluation: EvaluationTerms | None = None  # of a training that one follows
    window_usd_micros: int | None = None  # only of kind serve: what is set aside at a time, of the cap
