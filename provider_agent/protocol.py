"""Every message between agent and server, with the receipt and its encoding. The only module the server imports here.

Three kinds of call, all signed by the node's transport key and all harmless to repeat:

    enrol    once                      POST /api/agent/v1/enrol         and at the end /api/agent/v1/retire
    sync     level-triggered           POST /api/agent/v1/sync          the agent says what is, the server what should
    append   logs, events, receipts,   POST /api/agent/v1/leases/...    by offset or sequence
             artifacts

A lease is the unit on the wire: one node's part of one attempt. Versions: the server speaks PROTOCOL_VERSION and the
one before it.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from eth_account import Account
from eth_account.messages import SignableMessage, encode_typed_data
from pydantic import BaseModel, ConfigDict, Field

# py_ecc, below eth_account, lets Python recurse 100,000 deep: deeper than the C stack, so that nested brackets from
# anybody would kill the process that reads them. This puts Python's own limit back for all who import the protocol.
RECURSION_LIMIT: Final = 1000
sys.setrecursionlimit(RECURSION_LIMIT)

PROTOCOL_VERSION: Final = 1
PROTOCOL_VERSIONS_SPOKEN: Final = (1,)

REQUEST_WINDOW_SECONDS: Final = 60  # how far a signed request may lie from the server's clock
APPEND_BYTES_MAX: Final = 256 * 1024  # one append of logs or events
SYNC_BODY_BYTES_MAX: Final = 1024 * 1024
MESSAGE_CHARACTERS_MAX: Final = 2000
LEASES_PER_NODE_MAX: Final = 256
DEVICES_PER_NODE_MAX: Final = 64
RECEIPTS_PER_APPEND_MAX: Final = 100
FILES_PER_ARTIFACT_MAX: Final = 20_000

BEAT_SECONDS_LEASED: Final = 5
BEAT_SECONDS_IDLE: Final = 15
MISSES_UNTIL_SUSPECT: Final = 2
MISSES_UNTIL_LOST: Final = 3
LOST_GRACE_SECONDS: Final = 2

HEADER_NODE: Final = "Souk-Node"
HEADER_TIME: Final = "Souk-Time"
HEADER_SIGNATURE: Final = "Souk-Signature"


class Message(BaseModel):
    """Base of everything on this wire: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- states and reasons -----------------------------------------------------------------------------------------------


class AttemptState(StrEnum):
    """assigned -> preparing -> running -> stopping -> succeeded | failed | cancelled; each before the end -> lost."""

    ASSIGNED = "assigned"
    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


ATTEMPT_ENDS: Final = frozenset(
    {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST}
)
_BEFORE_END = {AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST}
ATTEMPT_TRANSITIONS: Final[Mapping[AttemptState, frozenset[AttemptState]]] = {
    AttemptState.ASSIGNED: frozenset({AttemptState.PREPARING, AttemptState.RUNNING, *_BEFORE_END}),
    AttemptState.PREPARING: frozenset({AttemptState.RUNNING, AttemptState.STOPPING, *_BEFORE_END}),
    AttemptState.RUNNING: frozenset({AttemptState.STOPPING, AttemptState.SUCCEEDED, *_BEFORE_END}),
    AttemptState.STOPPING: frozenset({AttemptState.SUCCEEDED, *_BEFORE_END}),
}


class Fault(StrEnum):
    """Whose fault an ending was; decides who pays for it."""

    NOBODY = "nobody"
    CUSTOMER = "customer"
    PROVIDER = "provider"
    NETWORK = "network"
    PLATFORM = "platform"


class Billable(StrEnum):
    """Up to where the customer pays an attempt that ended for a reason."""

    OBSERVED = "observed"  # up to the last second that the server observed
    CHECKPOINT = "checkpoint"  # up to the last complete checkpoint
    NOTHING = "nothing"


class Reason(StrEnum):
    """Why an attempt ended. The strings are public: API, bills and logs show them."""

    COMPLETED = "completed"
    EXIT_NONZERO = "exit_nonzero"
    BAD_CONFIG = "bad_config"
    BAD_INPUT = "bad_input"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED_BY_CUSTOMER = "cancelled_by_customer"
    CANCELLED_BY_OPERATOR = "cancelled_by_operator"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    BUDGET_EXHAUSTED = "budget_exhausted"
    NODE_SILENT = "node_silent"
    PROCESS_VANISHED = "process_vanished"
    LEASE_EXPIRED = "lease_expired"
    EXECUTOR_FAILED = "executor_failed"
    IMAGE_UNAVAILABLE = "image_unavailable"
    INPUT_UNAVAILABLE = "input_unavailable"
    UPLOAD_FAILED = "upload_failed"
    DISK_FULL = "disk_full"
    DEVICE_FAILED = "device_failed"
    NODE_DRAINED = "node_drained"
    NODE_QUARANTINED = "node_quarantined"
    GANG_BROKEN = "gang_broken"
    NEVER_STARTED = "never_started"
    INTERNAL = "internal"


class Outcome(NamedTuple):
    """One row of the reasons table."""

    state: AttemptState
    retry: bool  # True: tried again without asking; False: only where the job file's `retry.on` names it
    billable: Billable
    fault: Fault


_S, _B, _F = AttemptState, Billable, Fault
REASONS: Final[Mapping[Reason, Outcome]] = {
    Reason.COMPLETED: Outcome(_S.SUCCEEDED, False, _B.OBSERVED, _F.NOBODY),
    Reason.EXIT_NONZERO: Outcome(_S.FAILED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.BAD_CONFIG: Outcome(_S.FAILED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.BAD_INPUT: Outcome(_S.FAILED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.OUT_OF_MEMORY: Outcome(_S.FAILED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.CANCELLED_BY_CUSTOMER: Outcome(_S.CANCELLED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.CANCELLED_BY_OPERATOR: Outcome(_S.CANCELLED, False, _B.CHECKPOINT, _F.PLATFORM),
    Reason.DEADLINE_EXCEEDED: Outcome(_S.CANCELLED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.BUDGET_EXHAUSTED: Outcome(_S.CANCELLED, False, _B.OBSERVED, _F.CUSTOMER),
    Reason.NODE_SILENT: Outcome(_S.LOST, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.PROCESS_VANISHED: Outcome(_S.LOST, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.LEASE_EXPIRED: Outcome(_S.LOST, True, _B.CHECKPOINT, _F.NETWORK),
    Reason.EXECUTOR_FAILED: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.IMAGE_UNAVAILABLE: Outcome(_S.FAILED, False, _B.NOTHING, _F.CUSTOMER),
    Reason.INPUT_UNAVAILABLE: Outcome(_S.FAILED, True, _B.NOTHING, _F.NETWORK),
    Reason.UPLOAD_FAILED: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.NETWORK),
    Reason.DISK_FULL: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.DEVICE_FAILED: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.NODE_DRAINED: Outcome(_S.CANCELLED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.NODE_QUARANTINED: Outcome(_S.CANCELLED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.GANG_BROKEN: Outcome(_S.CANCELLED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.NEVER_STARTED: Outcome(_S.FAILED, True, _B.NOTHING, _F.PROVIDER),
    Reason.INTERNAL: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PLATFORM),
}


# --- what a node is ---------------------------------------------------------------------------------------------------


class DeviceKind(StrEnum):
    """What a device is: a whole GPU, or a share of the processor where there is none."""

    GPU = "gpu"
    CPU = "cpu"


class DeviceFacts(Message):
    """One device as the agent found it."""

    uuid: str = Field(min_length=1, max_length=96)  # NVML's UUID, or "cpu-<node key prefix>-<index>"
    index: int = Field(ge=0, lt=DEVICES_PER_NODE_MAX)
    kind: DeviceKind
    model: str = Field(min_length=1, max_length=120)
    memory_mib: int = Field(gt=0)
    details: dict[str, str | int | float | None] = Field(default_factory=dict)  # driver, PCIe, cores, ...


class NodeFacts(Message):
    """The machine as the agent found it; the server believes only what it demanded."""

    agent_version: str = Field(max_length=40)
    operating_system: str = Field(max_length=120)
    kernel: str = Field(max_length=120)
    cpu_model: str = Field(max_length=120)
    cpu_count: int = Field(gt=0)
    memory_mib: int = Field(gt=0)
    disk_free_mib: int = Field(ge=0)
    executor: Literal["process", "docker"]
    engine_version: str = Field(default="", max_length=80)
    devices: list[DeviceFacts] = Field(min_length=1, max_length=DEVICES_PER_NODE_MAX)


class OfferTerms(Message):
    """What the provider asks for the devices of a node."""

    price_usd_micros_per_device_hour: int = Field(gt=0, le=1_000_000_000)
    seconds_min: int = Field(default=60, ge=0)
    seconds_max: int = Field(default=7 * 24 * 3600, gt=0)
    region: str = Field(default="unknown", pattern=r"^[a-z0-9-]{1,32}$")
    available_until: datetime | None = None


class DeviceMeasurement(Message):
    """What runtimes/probe measured: FLOP/s per dtype with all devices of the node busy at once."""

    uuid: str = Field(min_length=1, max_length=96)
    flops_per_second: dict[str, float]  # dtype ("float32", "bfloat16") -> FLOP/s
    memory_bytes_per_second: float = Field(ge=0)
    seconds: float = Field(ge=0)


class EnrolRequest(Message):
    """Turns a single-use token into a node. `proof` is a transport-key signature over `enrol_proof_bytes`."""

    protocol: int
    token: str = Field(min_length=16, max_length=200)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$")
    transport_public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    receipt_address: str = Field(pattern=r"^0x[0-9a-fA-F]{40}$")
    proof: str
    receipt_proof: str  # signature of the receipt key over the same bytes (EIP-191)
    facts: NodeFacts
    offer: OfferTerms
    fabric: str = Field(default="", max_length=64)  # nodes with the same non-empty label reach each other
    fabric_address: str = Field(default="", max_length=64)  # under this IP address


class EnrolResponse(Message):
    """What the agent keeps of its enrolment."""

    node_id: UUID
    server_public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    sync_url: str
    api_url: str
    server_time: datetime


class MeasurementRequest(Message):
    """POST /api/agent/v1/measurements: makes the node's offer rentable."""

    probe_version: int
    devices: list[DeviceMeasurement] = Field(min_length=1, max_length=DEVICES_PER_NODE_MAX)


# --- what it should do ------------------------------------------------------------------------------------------------


class Program(Message):
    """What runs: a built-in runtime with its configuration, or the customer's own command."""

    runtime: Literal["train"] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    image: str | None = None
    command: list[str] | None = None


class CheckpointPolicy(Message):
    """How often the program saves and how many checkpoints are kept; 0 means not by this measure."""

    every_steps: int = Field(default=0, ge=0)
    every_seconds: int = Field(default=0, ge=0)
    keep: int = Field(default=2, ge=1)


class GangPlace(Message):
    """This node's place among the nodes of the attempt."""

    nodes: int = Field(default=1, ge=1)
    node_rank: int = Field(default=0, ge=0)
    devices_per_node: int = Field(default=1, ge=1)
    master_address: str = "127.0.0.1"
    master_port: int = Field(default=29500, gt=0, lt=65536)


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
    resume_artifact_id: UUID | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    gang: GangPlace = GangPlace()
    memory_mib_max: int = Field(default=0, ge=0)  # 0: the node's own limit
    seconds_max: int = Field(gt=0)
    stop_grace_seconds: int = Field(default=30, ge=1)


class SignedAssignment(Message):
    """An assignment's exact bytes and the server's Ed25519 signature over them."""

    payload: str
    signature: str


class Desired(Message):
    """One lease as the server wants it. `assignment` comes until the agent reports the lease."""

    lease_id: UUID
    fence: int
    action: Literal["run", "stop"]
    stop_reason: Reason | None = None
    lease_until: datetime
    assignment: SignedAssignment | None = None


class LeaseReport(Message):
    """One lease as the agent has it."""

    lease_id: UUID
    fence: int
    attempt_id: UUID
    state: AttemptState
    reason: Reason | None = None
    message: str = Field(default="", max_length=MESSAGE_CHARACTERS_MAX)
    exit_code: int | None = None
    billable_ms: int = Field(default=0, ge=0)
    log_bytes: int = Field(default=0, ge=0)  # written so far; the final count once the state is an end
    event_bytes: int = Field(default=0, ge=0)
    receipt_seq: int = Field(default=0, ge=0)  # the newest receipt made


class SyncRequest(Message):
    """What is, on this node. `known` is the version of the last answer; the server waits for a newer one."""

    protocol: int
    boot_id: UUID  # new at each start of the agent
    known: str = Field(default="", max_length=64)
    wait_seconds: float = Field(default=0, ge=0, le=60)
    leases: list[LeaseReport] = Field(default_factory=list, max_length=LEASES_PER_NODE_MAX)
    facts: NodeFacts | None = None  # when they changed, and at the first sync of a boot


class SyncResponse(Message):
    """What should be, on this node."""

    server_time: datetime
    version: str
    beat_seconds: float
    node_state: str
    desired: list[Desired] = Field(default_factory=list)
    forget: list[UUID] = Field(default_factory=list)  # leases that are settled here: the agent may delete them


# --- appends ----------------------------------------------------------------------------------------------------------


class AppendResponse(Message):
    """`offset`: the number of bytes that the server has. A gap is refused with 409 and the same field."""

    offset: int


class ReceiptAppend(Message):
    """POST /api/agent/v1/leases/{lease_id}/receipts"""

    receipts: list[SignedReceipt] = Field(min_length=1, max_length=RECEIPTS_PER_APPEND_MAX)


class ReceiptAck(Message):
    """`seq`: the newest receipt that the server has accepted."""

    seq: int


class ArtifactFile(Message):
    """One file of an artifact."""

    path: str = Field(min_length=1, max_length=512)
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArtifactBegin(Message):
    """POST /api/agent/v1/leases/{lease_id}/artifacts: announce the files, get where to put their bytes."""

    kind: Literal["checkpoint", "output"]
    step: int | None = Field(default=None, ge=0)
    billable_ms: int = Field(default=0, ge=0)  # the lease's meter when the checkpoint was complete on disk
    node_rank: int = Field(default=0, ge=0)
    files: list[ArtifactFile] = Field(max_length=FILES_PER_ARTIFACT_MAX)


class UploadPart(Message):
    """PUT `size` bytes from `offset` of the file to `url`; the answer's ETag goes into the completion."""

    number: int = Field(ge=1)
    offset: int = Field(ge=0)
    size: int = Field(ge=0)
    url: str


class FileUpload(Message):
    """Where one file's bytes go."""

    path: str
    parts: list[UploadPart]


class ArtifactUploads(Message):
    """Where the bytes go; a file that the server has already is left out."""

    artifact_id: UUID
    uploads: list[FileUpload]


class ArtifactComplete(Message):
    """POST .../artifacts/{artifact_id}/complete: path -> ETag of each part, in order."""

    etags: dict[str, list[str]]


class RemoteFile(Message):
    """A file that can be fetched from `url` until it expires."""

    path: str
    size: int
    sha256: str
    url: str


class ArtifactDownloads(Message):
    """GET .../artifacts/{artifact_id}"""

    artifact_id: UUID
    kind: str
    step: int | None
    files: list[RemoteFile]


# --- signatures of requests -------------------------------------------------------------------------------------------


def string_to_sign(method: str, path_and_query: str, time_ms: int, body: bytes) -> bytes:
    """The bytes that a signed request commits to: method, full path with query, time, and the body's SHA-256."""
    digest = hashlib.sha256(body).hexdigest()
    return f"souk-request-v1\n{method.upper()}\n{path_and_query}\n{time_ms}\n{digest}".encode()


def sign_request(  # noqa: PLR0917 - in the order in which they are signed
    key: Ed25519PrivateKey, node_id: UUID, method: str, path_and_query: str, time_ms: int, body: bytes
) -> dict[str, str]:
    """The three headers that authenticate a request of a node."""
    signature = key.sign(string_to_sign(method, path_and_query, time_ms, body))
    return {
        HEADER_NODE: str(node_id),
        HEADER_TIME: str(time_ms),
        HEADER_SIGNATURE: base64.b64encode(signature).decode(),
    }


def verify_request(  # noqa: PLR0917 - in the order in which they are signed
    public_key_hex: str, signature_base64: str, method: str, path_and_query: str, time_ms: int, body: bytes
) -> bool:
    """Whether the signature fits; the caller checks the time window."""
    return verify_bytes(public_key_hex, signature_base64, string_to_sign(method, path_and_query, time_ms, body))


def enrol_proof_bytes(token: str, transport_public_key: str, receipt_address: str) -> bytes:
    """What both keys sign at enrolment, so that nobody enrols a key that is not theirs."""
    token_hash = hashlib.sha256(token.encode()).hexdigest()
    return f"souk-enrol-v1\n{token_hash}\n{transport_public_key}\n{receipt_address.lower()}".encode()


def sign_assignment(key: Ed25519PrivateKey, assignment: Assignment) -> SignedAssignment:
    """Freeze an assignment's JSON and sign exactly those bytes."""
    payload = assignment.model_dump_json()
    return SignedAssignment(payload=payload, signature=base64.b64encode(key.sign(payload.encode())).decode())


def verify_assignment(server_public_key_hex: str, signed: SignedAssignment) -> Assignment:
    """The assignment, once its signature was verified; raises ValueError when it does not fit."""
    if not verify_bytes(server_public_key_hex, signed.signature, signed.payload.encode()):
        raise ValueError("the assignment is not signed by this marketplace's key")
    return Assignment.model_validate_json(signed.payload)


def sign_bytes(key: Ed25519PrivateKey, message: bytes) -> str:
    """An Ed25519 signature as base64; the counterpart of verify_bytes."""
    return base64.b64encode(key.sign(message)).decode()


def verify_bytes(public_key_hex: str, signature_base64: str, message: bytes) -> bool:
    """Whether an Ed25519 signature fits; malformed keys and signatures are a plain False."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key_hex))
        key.verify(base64.b64decode(signature_base64, validate=True), message)
    except (InvalidSignature, ValueError):
        return False
    return True


# --- receipts (EIP-712) -----------------------------------------------------------------------------------------------

ZERO_ADDRESS: Final = "0x" + "0" * 40
ZERO_HASH: Final = "0x" + "0" * 64
MS_PER_HOUR: Final = 3_600_000

RECEIPT_TYPES: Final = {
    "UsageReceipt": [
        {"name": "jobId", "type": "bytes32"},
        {"name": "leaseId", "type": "bytes32"},
        {"name": "provider", "type": "address"},
        {"name": "customer", "type": "address"},
        {"name": "asset", "type": "address"},
        {"name": "seq", "type": "uint64"},
        {"name": "billableMs", "type": "uint64"},
        {"name": "cumulativeAmount", "type": "uint256"},
        {"name": "meterHash", "type": "bytes32"},
        {"name": "prevDigest", "type": "bytes32"},
    ]
}

HASH_PATTERN = r"^0x[0-9a-f]{64}$"
ADDRESS_PATTERN = r"^0x[0-9a-fA-F]{40}$"


class ReceiptDomain(Message):
    """The EIP-712 domain; chain id 0 and the zero address where no contract is involved."""

    chain_id: int = 0
    verifying_contract: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)


NO_CONTRACT: Final = ReceiptDomain()


class UsageReceipt(Message):
    """What one lease has used so far: both figures are cumulative, so that only the newest receipt matters."""

    job_id: UUID
    lease_id: UUID
    provider: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    customer: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    asset: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    seq: int = Field(ge=1, lt=2**64)
    billable_ms: int = Field(ge=0, lt=2**64)
    cumulative_amount: int = Field(ge=0, lt=2**256)  # micro-USD, or base units of the asset
    meter_hash: str = Field(default=ZERO_HASH, pattern=HASH_PATTERN)  # SHA-256 of the lease's event bytes so far
    prev_digest: str = Field(default=ZERO_HASH, pattern=HASH_PATTERN)  # digest of receipt seq-1; zero for the first


class SignedReceipt(Message):
    """A receipt and the receipt key's signature over its EIP-712 digest."""

    receipt: UsageReceipt
    signature: str = Field(pattern=r"^0x[0-9a-f]{130}$")


ReceiptAppend.model_rebuild()


def charge(rate_per_hour: int, billable_ms: int) -> int:
    """Cumulative charge of `billable_ms` at an hourly rate, rounded down in the customer's favour."""
    return rate_per_hour * billable_ms // MS_PER_HOUR


def payable_ms(rate_per_hour: int, cap: int) -> int:
    """The longest time whose charge stays within `cap`, in milliseconds; without end where the rate is 0."""
    return cap * MS_PER_HOUR // rate_per_hour if rate_per_hour else 2**63 - 1


def id_bytes32(value: UUID) -> bytes:
    """A UUID as bytes32: its 16 bytes, left-padded with zeros."""
    return value.bytes.rjust(32, b"\0")


def receipt_digest(receipt: UsageReceipt, domain: ReceiptDomain = NO_CONTRACT) -> str:
    """EIP-712 digest of a receipt as 0x-hex; what the key signs and the next receipt points to."""
    message = _signable(receipt, domain)
    digest = _keccak(b"\x19" + message.version + message.header + message.body)
    return "0x" + digest.hex()


def sign_receipt(private_key_hex: str, receipt: UsageReceipt, domain: ReceiptDomain = NO_CONTRACT) -> SignedReceipt:
    """Sign a receipt with the node's secp256k1 receipt key."""
    signed = Account.sign_message(_signable(receipt, domain), private_key=private_key_hex)
    return SignedReceipt(receipt=receipt, signature="0x" + bytes(signed.signature).hex())


def recover_receipt_signer(signed: SignedReceipt, domain: ReceiptDomain = NO_CONTRACT) -> str:
    """The address whose key signed; raises ValueError for a malformed signature."""
    try:
        address: str = Account.recover_message(_signable(signed.receipt, domain), signature=signed.signature)
    except Exception as error:  # eth-keys raises several unrelated types for bytes that are no signature
        raise ValueError(f"not a valid receipt signature: {error}") from error
    return address


def _signable(receipt: UsageReceipt, domain: ReceiptDomain) -> SignableMessage:
    return encode_typed_data(
        domain_data={
            "name": "Souk",
            "version": "1",
            "chainId": domain.chain_id,
            "verifyingContract": domain.verifying_contract,
        },
        message_types=RECEIPT_TYPES,
        message_data={
            "jobId": id_bytes32(receipt.job_id),
            "leaseId": id_bytes32(receipt.lease_id),
            "provider": receipt.provider,
            "customer": receipt.customer,
            "asset": receipt.asset,
            "seq": receipt.seq,
            "billableMs": receipt.billable_ms,
            "cumulativeAmount": receipt.cumulative_amount,
            "meterHash": bytes.fromhex(receipt.meter_hash[2:]),
            "prevDigest": bytes.fromhex(receipt.prev_digest[2:]),
        },
    )


def _keccak(data: bytes) -> bytes:
    from eth_utils.crypto import keccak

    return bytes(keccak(data))
