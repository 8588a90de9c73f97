"""The messages of control-plane sync between a gateway and the marketplace: POST /internal/gateway/v1/sync.

About once a second the gateway reports load, replicas and use; the answer has the table and key grants. Both are
harmless to repeat: use is numbered (`seq`) by each gateway and booked once, of everything else the newest counts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict

SYNC_PATH = "/internal/gateway/v1/sync"
KEYS_PATH = "/internal/gateway/v1/keys"
USAGE_ROWS_MAX = 500  # a sync
KEYS_MAX = 1000  # a look-up, and a sync
SYNC_BODY_BYTES_MAX = 4 * 1024 * 1024
COUNT_MAX = 1_000_000  # of one thing in one sync
TOTAL_MAX = 2**63 - 1  # PostgreSQL's bigint
PICOS_PER_MICRO = 1_000_000  # pico-dollars
WORDS_CHARACTERS_MAX = 4096
LOADS_MAX = 100_000  # endpoints, and replicas, that one gateway has

KeyKind = Literal["endpoint", "session"]
Status = Literal["ok", "cancelled", "failed", "refused", "timeout", "replica_lost"]


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value[:WORDS_CHARACTERS_MAX].encode(errors="replace").decode().replace("\0", "")


def _counted(value: Any) -> Any:
    return min(max(value, 0), COUNT_MAX) if isinstance(value, int) else value


def _totalled(value: Any) -> Any:
    return min(value, TOTAL_MAX) if isinstance(value, int) else value


def _in_picos(value: Any) -> Any:
    return min(value, TOTAL_MAX * PICOS_PER_MICRO) if isinstance(value, int) else value


def _timed(value: Any) -> Any:
    return min(max(value, 0), TOTAL_MAX) if isinstance(value, int) else value


def _measured(value: Any) -> Any:
    is_number = isinstance(value, int | float) and value == value  # noqa: PLR0124 - NaN is not itself
    return min(max(value, 0.0), float(COUNT_MAX)) if is_number else None


def _waited(value: Any) -> Any:
    return _measured(value) or 0.0


# One odd letter or number, which may come from anybody's engine, must not keep a whole sync out: it is made harmless.
Words = Annotated[str, BeforeValidator(_plain)]
Count = Annotated[int, Strict(), BeforeValidator(_counted)]
Total = Annotated[int, Strict(), BeforeValidator(_totalled)]
Picos = Annotated[int, Strict(), BeforeValidator(_in_picos)]
Milliseconds = Annotated[int, Strict(), BeforeValidator(_timed)]
Figure = Annotated[float | None, BeforeValidator(_measured)]
Wait = Annotated[float, BeforeValidator(_waited)]


class Row(BaseModel):
    """Base of all: frozen; unknown fields are passed over, so that either side may be the newer one."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EndpointLimits(Row):
    """Limits of one request; `jobs.spec.kinds.serve.Limits` and `Scale`, by the endpoint's present version."""

    context: int | None = None  # tokens; None: the engine's own
    max_tokens: int = 4096
    body_bytes: int = 4 * 1024 * 1024
    request_seconds: float = 600
    wake_seconds: float = 300  # how long a request waits where no replica is ready
    in_flight: int = 8  # of one replica: beyond it requests wait at the gateway


class VersionRow(Row):
    """One version of an endpoint and its part of the requests; the shares of an endpoint add up to 100."""

    version: int
    share: int


class EndpointRow(Row):
    """One endpoint that may be called."""

    endpoint_id: UUID
    job_id: UUID
    organisation_id: UUID
    organisation: str  # the short name, for the public model name `organisation/model`
    model: str  # what callers write as `model`
    task: Literal["generate", "embed"] = "generate"
    is_public: bool = False
    versions: list[VersionRow] = Field(default_factory=list)
    limits: EndpointLimits = EndpointLimits()
    input_usd_micros_per_million: int = 0
    output_usd_micros_per_million: int = 0
    verify_share: int = 0  # percent of the answers
    created_at: int = 0  # unix seconds
    closed: str = ""  # why it takes nothing now, for people; empty: it does


class ReplicaRow(Row):
    """One replica's lease: which node may announce it, and whether it may be given requests."""

    lease_id: UUID
    attempt_id: UUID
    endpoint_id: UUID
    version: int
    node_id: UUID
    node_key: str  # Ed25519, hex: who announces the lease signs with it
    provider_id: UUID | None = None  # whose node it is: another one's replica checks this one's answers
    state: Literal["starting", "ready", "draining"]
    usd_micros_per_hour: int = 0


class Table(Row):
    """Everything that is served now."""

    endpoints: list[EndpointRow] = Field(default_factory=list)
    replicas: list[ReplicaRow] = Field(default_factory=list)


class KeyGrant(Row):
    """What the holder of a key may do until `expires_at_ms`; renewed before. None: no such limit."""

    key_id: UUID
    key_hash: str  # SHA-256 of the key, hex
    kind: KeyKind
    organisation_id: UUID  # who pays
    endpoint_ids: list[UUID] | None = None  # None: every one of the organisation, and every public one
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    in_flight_max: int | None = None
    budget_usd_micros: int | None = None  # what this gateway may still let it spend under this grant
    foreign_usd_micros: int | None = None  # of the payer's balance, for other organisations' endpoints; None: never
    refused: str = ""  # why it may nothing, for people ("revoked", "no_money", "spend_limit"); empty: it may
    expires_at_ms: int


class EndpointLoad(Row):
    """What one gateway counted of one endpoint since its last sync, and has now."""

    endpoint_id: UUID
    in_flight: Count
    queued: Count  # requests that wait for a replica now
    queue_seconds_max: Wait  # of those that were let in since, and of those that wait
    arrived: Count  # requests since the last sync
    failed: Count  # of them for the engine's or the network's fault
    refused: Count = 0  # with 429 or 503 for want of replicas
    is_wanted: bool = False  # somebody waits, and no replica is ready


class ReplicaLoad(Row):
    """One replica as one gateway has it: a replica that is not listed has no tunnel there."""

    lease_id: UUID
    is_ready: bool  # its tunnel is there, and its newest signs are good
    in_flight: Count
    capabilities: list[Words] = Field(default_factory=list, max_length=LOADS_MAX)
    context: Total | None = None
    engine: Words = ""
    served: Count = 0  # requests since the last sync
    failed: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    first_token_ms_p50: Figure = None
    tokens_per_second: Figure = None  # of one stream, mean since the last sync
    why: Words = ""  # it is not ready


class UsageRow(Row):
    """What one request, or the part of it that one replica answered, used. Numbered by its gateway without gaps."""

    seq: Annotated[int, Strict(), Field(ge=1, le=TOTAL_MAX)]
    request_id: UUID
    part: Count = 0  # a stream that moved to another replica has more than one
    key_id: UUID
    organisation_id: UUID  # who pays
    endpoint_id: UUID
    version: Count
    lease_id: UUID | None  # None: no replica was reached
    model: Words
    kind: Literal["chat", "completion", "embedding"]
    status: Status
    input_tokens: Total = Field(ge=0)
    cached_tokens: Total = Field(default=0, ge=0)
    output_tokens: Total = Field(ge=0)
    cost_usd_micros: Total = Field(ge=0)  # by the endpoint's prices, rounded up: what the gateway took off its slices
    cost_usd_picos: Picos | None = Field(
        default=None, ge=0
    )  # exactly; None: of an older gateway, whose micros are down
    is_reported: bool = False  # the engine reported its count, so the agent of its node saw one
    at_ms: Milliseconds  # unix milliseconds, at its end
    queue_ms: Milliseconds = 0
    first_token_ms: Milliseconds | None = None
    total_ms: Milliseconds = 0


class AuditRow(Row):
    """What came of computing one answer again on another replica."""

    request_id: UUID
    endpoint_id: UUID
    lease_id: UUID  # whose answer it was
    checked_by: UUID  # the lease that computed it again
    verdict: Literal["match", "mismatch", "unclear"]
    detail: Words = ""
    at_ms: Milliseconds


class GatewaySync(Row):
    """A gateway's report. `gateway_id` stays over restarts (its spool does), `boot_id` does not."""

    gateway_id: UUID
    boot_id: UUID
    url: Words = ""  # by which agents reach it
    public_key: Words = ""  # Ed25519, hex
    known: Words = ""  # version of the table that it has
    loads: list[EndpointLoad] = Field(default_factory=list, max_length=LOADS_MAX)
    replicas: list[ReplicaLoad] = Field(default_factory=list, max_length=LOADS_MAX)
    keys: list[UUID] = Field(default_factory=list, max_length=KEYS_MAX)  # whose grants are to be renewed
    usage: list[UsageRow] = Field(default_factory=list, max_length=USAGE_ROWS_MAX)
    audits: list[AuditRow] = Field(default_factory=list, max_length=USAGE_ROWS_MAX)


class GatewayAnswer(Row):
    """The marketplace's answer to a report."""

    version: str
    table: Table | None = None  # None: it is the known one
    grants: list[KeyGrant] = Field(default_factory=list)
    usage_seq: int = 0  # everything up to here is in the database: the spool may forget it


class KeyQuestion(Row):
    """POST /internal/gateway/v1/keys: who holds keys that the gateway does not know."""

    gateway_id: UUID
    key_hashes: list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(max_length=KEYS_MAX)


class KeyAnswer(Row):
    """The grants of those that exist."""

    grants: list[KeyGrant] = Field(default_factory=list)
