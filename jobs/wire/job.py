"""A job from its submission on: its attempts, their streams and figures."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from billing.proofs.escrow import SignedHoldAuthorization
from jobs.wire.base import Units, Wire
from jobs.wire.prices import JobPriceView, PriceChangeView
from jobs.wire.usage import BUDGET_USD_MICROS_MAX
from provider_agent.protocol import Whole

SECRETS_MAX = 100
SECRET_NAME_CHARACTERS_MAX = 128
SECRET_CHARACTERS_MAX = 32_768

Secrets = Annotated[
    dict[
        Annotated[str, Field(max_length=SECRET_NAME_CHARACTERS_MAX)],
        Annotated[str, Field(max_length=SECRET_CHARACTERS_MAX)],
    ],
    Field(max_length=SECRETS_MAX),
]


class SubmitRequest(BaseModel):
    """POST /api/v1/jobs, with an Idempotency-Key."""

    model_config = ConfigDict(extra="forbid")
    spec: dict[str, Any]
    quote_id: UUID
    input_artifact_id: UUID | None = None
    secrets: Secrets = Field(default_factory=dict, repr=False)
    authorization: SignedHoldAuthorization | None = None  # needed in escrow mode, refused in any other


class ResumeRequest(BaseModel):
    """POST /api/v1/jobs/{id}/resume: the paused job's new budget in all."""

    model_config = ConfigDict(extra="forbid")
    max_total_usd_micros: Whole = Field(gt=0, le=BUDGET_USD_MICROS_MAX)


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
    asset: str = "USD"
    rate_units_per_hour: Units | None = None
    charge_units: Units | None = None
    is_joining: bool = False  # it waits to join the gang, which trains without it meanwhile


class GenerationView(Wire):
    """That an attempt over several nodes went on with other ones, or with more or fewer."""

    number: int
    at: datetime
    reason: str  # why a node was lost; `grown`: none was
    resumed_step: int  # of the checkpoint from which all went on
    grown_to: int | None = None  # nodes, where they are more
    shrunk_to: int | None = None  # nodes, where they are fewer


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
    generations: list[GenerationView] = Field(default_factory=list)  # after the first one, the newest hundred


class EscrowLeaseView(Wire):
    """What a lease was settled for on the chain; `settled` = `pending` + `paid` + `fee` + `refunded`."""

    lease_id: UUID
    provider: str  # its payout wallet
    settled_units: Units
    pending_units: Units  # waits until `release_at`
    paid_units: Units
    fee_units: Units
    refunded_units: Units
    release_at: datetime
    is_challenged: bool


class EscrowView(Wire):
    """The job's hold in the contract, by final blocks; amounts are base units of the token."""

    state: str  # requested, open, closed, failed
    reason: str
    wallet: str  # the customer's
    chain_id: int
    contract: str
    held_units: Units
    settled_units: Units
    refunded_units: Units
    deadline: datetime
    transaction_hash: str  # that opens the hold; empty until it is sent
    leases: list[EscrowLeaseView] = Field(default_factory=list)


class EvaluationView(Wire):
    """The evaluation that a training's job file asks for.

    `state`: `planned` (the training is under way), `due`, `launched`, `given_up`, or `none`: the training did not
    complete.
    """

    state: str
    job_id: UUID | None = None  # once it is launched
    cap_usd_micros: int
    tries: int = 0  # in vain
    next_try_at: datetime | None = None
    message: str = ""  # why the last try was in vain


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
    progress: dict[str, Any]  # the newest step event: step, steps_total, loss, ...; before it `preparing`
    cost_so_far_usd_micros: int
    cap_usd_micros: int
    asset: str = "USD"  # that pays; the amounts above are dollars at the price of the job's quote
    payment_mode: str = "credits"
    escrow: EscrowView | None = None  # in `souk show` of a job in escrow mode
    prices: list[JobPriceView] = Field(default_factory=list)  # there, of a job that a token pays; the last one counts
    price_change: PriceChangeView | None = None  # there, of a job that waits for a price
    evaluation: EvaluationView | None = None  # there, of a training that one follows
    evaluated_job_id: UUID | None = None  # there, of such an evaluation: the training
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


class CurvePointView(Wire):
    """What a program reported of one series from `first_step` to `last_step`: `count` figures.

    `attempt`: the newest that reported one of these steps. `newest`: the figure that came last.
    """

    attempt: int
    first_step: int
    last_step: int
    count: int
    mean: float
    lowest: float
    highest: float
    newest: float


class CurveSeries(Wire):
    """One series of a job's curve, oldest step first: at most 1,000 points that do not overlap."""

    name: str
    points: list[CurvePointView]


class JobCurve(Wire):
    """GET /api/v1/jobs/{id}/curve"""

    stride: int  # steps that a point may hold; it doubles where the points become too many
    series: list[CurveSeries]  # those of a training first, then those that the program named itself
    has_more_names: bool  # the program named more series than are kept
