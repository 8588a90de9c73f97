"""What a node runs: one part of one attempt, signed by the server."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from provider_agent.protocol.gangs import GangPlace
from provider_agent.protocol.limits import (
    INPUT_FOLDER_PATTERN,
    INPUTS_MAX,
    OUTPUT_PATTERNS_MAX,
    PROTOCOL_VERSION,
    SETUP_CHARACTERS_MAX,
    SETUP_LINES_MAX,
)
from provider_agent.protocol.message import Message
from provider_agent.protocol.money.payment import PaymentTerms, ReceiptParties
from provider_agent.protocol.money.receipts import NO_CONTRACT, ReceiptDomain
from provider_agent.protocol.serving import ServePlace
from runtimes.contract import checkpoint_path_mistake, requirements_path_mistake

RUNTIME_PATTERN = r"^[a-z][a-z0-9_-]{0,31}$"
CACHE_FEATURE = "cache"  # of nodes whose agent keeps one
PREPARED_FEATURE = "prepared"  # of those that fetch what earlier attempts of a job prepared, too
CACHE_OWNER_PATTERN = r"^([0-9a-f]{32})?$"


def _plain_requirements(path: str) -> str:
    if mistake := requirements_path_mistake(path):
        raise ValueError(mistake)
    return path


class Program(Message):
    """What runs: a built-in runtime with its configuration, or the customer's own command."""

    runtime: str | None = Field(default=None, pattern=RUNTIME_PATTERN)  # an agent without it refuses the assignment
    config: dict[str, Any] = Field(default_factory=dict)
    image: str | None = None
    command: list[str] | None = None
    # Of an own command: lines that bash runs before it, and a file below input/ whose packages are installed first.
    setup: list[Annotated[str, Field(min_length=1, max_length=SETUP_CHARACTERS_MAX)]] | None = Field(
        default=None, max_length=SETUP_LINES_MAX
    )
    requirements: Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_plain_requirements)] | None = None

    @model_serializer(mode="wrap")
    def _as_older_agents_read_it(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        body: dict[str, Any] = dump(self)
        return {key: value for key, value in body.items() if value is not None or key not in ("setup", "requirements")}


def _plain_path(path: str) -> str:
    if mistake := checkpoint_path_mistake(path):
        raise ValueError(mistake)
    return path


class CheckpointPolicy(Message):
    """How often the program saves and how many checkpoints are kept; 0 means not by this measure.

    `path`: what the agent copies every `every_seconds` in the program's place, relative to the work folder.
    `mean_seconds_to_failure`: of the nodes together, where the program may reckon its own interval by it; else 0.
    """

    every_steps: int = Field(default=0, ge=0)
    every_seconds: int = Field(default=0, ge=0)
    keep: int = Field(default=2, ge=1)
    mean_seconds_to_failure: int = Field(default=0, ge=0)
    path: Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_plain_path)] | None = (
        None  # None: its own
    )

    @model_serializer(mode="wrap")
    def _as_older_agents_read_it(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        body: dict[str, Any] = dump(self)
        if body.get("path") is None:
            body.pop("path", None)
        if body.get("mean_seconds_to_failure") == 0:
            del body["mean_seconds_to_failure"]
        return body


class Assignment(Message):
    """Run this part of this attempt. Signed by the server; the agent verifies before it acts."""

    protocol: int = PROTOCOL_VERSION
    node_id: UUID
    lease_id: UUID
    fence: int = Field(ge=1)  # rises with every lease of a device; an older one is refused
    attempt_id: UUID
    attempt_number: int = Field(ge=1)
    job_id: UUID
    job_name: str
    device_uuids: list[str] = Field(min_length=1)
    rate_usd_micros_per_hour: int = Field(ge=0)  # of all devices of the lease
    cap_usd_micros: int = Field(ge=0)  # the lease may never bill more
    program: Program
    env: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    input_artifact_id: UUID | None = None
    # Folder below input/ -> what an earlier job left.
    inputs: dict[Annotated[str, Field(pattern=INPUT_FOLDER_PATTERN)], UUID] = Field(
        default_factory=dict, max_length=INPUTS_MAX
    )
    resume_artifact_id: UUID | None = None
    # What an earlier attempt prepared for long, such as tokens. Never needed: without it the program makes it anew.
    prepared_artifact_id: UUID | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    gang: GangPlace = GangPlace()
    # Of the gang; after 0 a later assignment of the same lease, because a lost node of the gang was replaced, or the
    # gang has another size.
    generation: int = Field(default=0, ge=0)
    joins_next: bool = False  # it is none of this generation: its program loads, and waits for the next one
    network: Literal["none", "public"] = "none"  # public: the internet, and nothing of the provider's
    lent: list[str] = Field(default_factory=list)  # labels of shared host folders, which the program reads
    # What is collected beside output/ of an own command: what matches; None: all that it made or changed.
    outputs: list[Annotated[str, Field(min_length=1, max_length=512)]] | None = Field(
        default=None, max_length=OUTPUT_PATTERNS_MAX
    )
    memory_mib_max: int = Field(default=0, ge=0)  # 0: the node's own limit
    # Whose entries of the node's cache the program reads: a name of the customer's that this node alone is given.
    cache_owner: str = Field(default="", pattern=CACHE_OWNER_PATTERN)  # empty: it has no cache
    shm_mib: int = Field(default=0, ge=0)  # the size of /dev/shm; 0: as the node has it
    seconds_max: int = Field(gt=0)
    stop_grace_seconds: int = Field(default=30, ge=1)
    payment: PaymentTerms | None = None  # None: dollars
    serve: ServePlace | None = None  # None: nobody calls it

    @property
    def rate_per_hour(self) -> int:
        """What the receipts count with: base units of what pays, of all devices of the lease."""
        return self.payment.rate_per_hour if self.payment else self.rate_usd_micros_per_hour

    @property
    def cap(self) -> int:
        """What the receipts may reach, in the same units."""
        return self.payment.cap if self.payment else self.cap_usd_micros

    @property
    def receipt_domain(self) -> ReceiptDomain:
        """Under which the receipts are signed."""
        return self.payment.domain if self.payment else NO_CONTRACT

    @property
    def receipt_parties(self) -> ReceiptParties:
        """What the receipts name."""
        return self.payment.parties if self.payment else ReceiptParties()

    @model_serializer(mode="wrap")
    def _as_older_agents_read_it(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # An agent from before a field refuses it, on the wire and in the journal that it goes back to.
        body: dict[str, Any] = dump(self)
        for name in ("payment", "serve", "outputs", "prepared_artifact_id"):
            if body.get(name) is None:
                body.pop(name, None)
        for name in ("inputs", "cache_owner"):
            if not body.get(name):
                body.pop(name, None)
        if body.get("generation") == 0:
            del body["generation"]
        if not body.get("joins_next"):
            body.pop("joins_next", None)
        if body.get("shm_mib") == 0:
            del body["shm_mib"]
        return body


class SignedAssignment(Message):
    """An assignment's exact bytes and the server's Ed25519 signature over them."""

    payload: str
    signature: str
