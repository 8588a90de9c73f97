"""Types of the public API, shared by the server that answers and the client that asks. No Django.

Money is an integer in micro-USD, times are aware UTC. See `provider_agent.protocol` for the agents' side.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from provider_agent.protocol import ArtifactFile, FileUpload, RemoteFile, SignedReceipt


class Wire(BaseModel):
    """Base of the public types. Servers may add fields; a client ignores those that it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


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


class QuoteRequest(BaseModel):
    """POST /api/v1/quotes"""

    model_config = ConfigDict(extra="forbid")
    spec: dict[str, Any]


class QuoteView(Wire):
    """A price promise; `quote_id` is None when nothing fits, and then the plan says why and what would help."""

    quote_id: UUID | None
    spec_hash: str
    plan: Plan
    price_ceiling_usd_micros: int | None
    expected_usd_micros: int | None
    expected_seconds: float | None
    cap_usd_micros: int | None
    expires_at: datetime | None
    signature: str | None
    balance_usd_micros: int


class UploadRequest(BaseModel):
    """POST /api/v1/uploads: the job's files, before it is submitted."""

    model_config = ConfigDict(extra="forbid")
    files: list[ArtifactFile] = Field(min_length=1)


class UploadView(Wire):
    """Where the files' bytes go; then POST /api/v1/uploads/{artifact_id}/complete with UploadComplete."""

    artifact_id: UUID
    uploads: list[FileUpload]


class UploadComplete(BaseModel):
    """path -> ETag of each part, in order."""

    model_config = ConfigDict(extra="forbid")
    etags: dict[str, list[str]]


class SubmitRequest(BaseModel):
    """POST /api/v1/jobs, with an Idempotency-Key."""

    model_config = ConfigDict(extra="forbid")
    spec: dict[str, Any]
    quote_id: UUID
    input_artifact_id: UUID | None = None
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)


class LeaseView(Wire):
    """One node's part of an attempt."""

    lease_id: UUID
    node_id: UUID
    node_name: str
    node_rank: int
    state: str
    devices: int
    device_model: str
    rate_usd_micros_per_hour: int
    billable_ms: int | None
    charge_usd_micros: int | None


class AttemptView(Wire):
    """One try."""

    attempt_id: UUID
    number: int
    state: str
    reason: str
    fault: str
    message: str
    exit_code: int | None
    resumed_from_step: int | None
    created_at: datetime
    running_at: datetime | None
    ended_at: datetime | None
    leases: list[LeaseView]


class JobView(Wire):
    """A job, as lists and `souk show` have it."""

    job_id: UUID
    name: str
    kind: str
    state: str
    reason: str
    message: str
    waiting_for: str
    is_cancelling: bool
    progress: dict[str, Any]  # the newest step event: step, steps_total, loss, tokens_per_second, ...
    cost_so_far_usd_micros: int
    cap_usd_micros: int
    created_at: datetime
    running_at: datetime | None
    ended_at: datetime | None
    attempts: list[AttemptView] = Field(default_factory=list)
    spec: dict[str, Any] = Field(default_factory=dict)


class StreamPage(Wire):
    """GET /api/v1/jobs/{id}/logs | events ?attempt=&node_rank=&offset=&wait_seconds=: a piece of one lease's stream.

    `is_complete`: nothing more will come of this attempt's stream. `attempts`: how many there are by now. Without
    `attempt`, the newest; one that the job never had is 404 stream_not_found. Offsets count
    bytes; `text` never ends within a character.
    """

    attempt: int
    node_rank: int
    offset: int
    next_offset: int
    text: str
    is_complete: bool
    attempts: int
    job_state: str


class ArtifactView(Wire):
    """An artifact; `files` with their addresses only when asked for by id."""

    artifact_id: UUID
    job_id: UUID | None
    kind: str
    step: int | None
    state: str
    size_bytes: int
    file_count: int
    created_at: datetime
    completed_at: datetime | None
    files: list[RemoteFile] = Field(default_factory=list)


class BillLine(Wire):
    """One lease: what its newest receipt says, what is charged, and why the two differ where they do."""

    attempt: int
    lease_id: UUID
    node_name: str
    receipt_address: str  # the key that must have signed
    devices: int
    rate_usd_micros_per_hour: int
    receipts: list[SignedReceipt]
    claimed_ms: int
    observed_ms: int
    billable_ms: int
    claimed_usd_micros: int
    charge_usd_micros: int
    refunded_usd_micros: int  # claimed - charged
    reason: str
    fault: str
    explanation: str


class BillView(Wire):
    """GET /api/v1/jobs/{id}/bill: adds up to the charged amount, to the micro-dollar."""

    job_id: UUID
    state: str
    is_final: bool
    lines: list[BillLine]
    total_usd_micros: int
    fee_usd_micros: int
    hold_usd_micros: int
    released_usd_micros: int
    settlement: dict[str, Any] | None = None


class ErrorView(Wire):
    """What every error looks like."""

    code: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class DeviceView(Wire):
    """A device of an offer or a node, with what was measured of it."""

    kind: str
    model: str
    memory_mib: int
    flops_per_second: dict[str, float]


class TermsView(Wire):
    """On which terms a node's devices may be rented."""

    price_usd_micros_per_device_hour: int
    seconds_min: int
    seconds_max: int
    region: str
    available_until: datetime | None


class OfferView(TermsView):
    """GET /api/v1/offers"""

    id: UUID
    node_id: UUID
    node_name: str
    provider: str
    executor: str
    isolation: str = "none"
    egress: bool = False
    lent: list[str] = []
    devices: list[DeviceView]


class MetricsPoint(Wire):
    """A minute or an hour of one node's part of a job: of each series its mean and its highest."""

    lease_id: UUID
    attempt: int
    node_rank: int
    at: datetime
    seconds: int
    values: dict[str, list[float]]


class JobMetrics(Wire):
    """GET /api/v1/jobs/{id}/metrics"""

    points: list[MetricsPoint]


class BalanceView(Wire):
    """GET /api/v1/balance"""

    available_usd_micros: int
    held_usd_micros: int
    provider_pending_usd_micros: int
    provider_available_usd_micros: int


class OrganisationView(Wire):
    """In whose name a key acts."""

    id: UUID
    name: str


class SignIn(Wire):
    """Answer of POST /api/v1/login"""

    key: str = Field(repr=False)
    organisation: OrganisationView
    scopes: list[str]


class MeView(Wire):
    """GET /api/v1/me"""

    organisation: OrganisationView


class ResumeRequest(BaseModel):
    """POST /api/v1/jobs/{id}/resume: the paused job's new budget in all."""

    model_config = ConfigDict(extra="forbid")
    max_total_usd_micros: int = Field(gt=0)


class ProviderView(Wire):
    """Answer of POST /api/v1/provider"""

    id: UUID
    display_name: str


class EnrolmentTokenView(Wire):
    """Answer of POST /api/v1/provider/enrolment-tokens: shown once."""

    token: str = Field(repr=False)
    expires_at: datetime


class LinkView(Wire):
    """What lies between a node and another one of its fabric, as both measured it."""

    node_id: UUID
    node_name: str
    condition: Literal["good", "failed", "unmeasured"]
    round_trip_us: int | None
    bandwidth_bytes_per_second: int | None  # of the slower direction
    measured_at: datetime | None
    why: str


class NodeView(Wire):
    """GET /api/v1/provider/nodes"""

    id: UUID
    name: str
    state: str
    executor: str
    last_seen_at: datetime | None
    devices: list[DeviceView]
    offer: TermsView | None
    fabric: str = ""
    links: list[LinkView] = []
