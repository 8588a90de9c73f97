"""What a node is: devices, facts, terms, and how it enrols."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.bounds import (
    DETAILS_MAX,
    PRICE_USD_MICROS_MAX,
    Count,
    Detail,
    DetailName,
    Measure,
    Moment,
    Signature,
    SmallCount,
    Whole,
)
from provider_agent.protocol.gangs import GangKind
from provider_agent.protocol.limits import (
    DEVICES_PER_NODE_MAX,
    LABEL_PATTERN,
    LENT_MAX,
    MEMORY_RESERVE_MIB,
    RUNTIME_FEATURES_MAX,
)
from provider_agent.protocol.message import Account, Message
from provider_agent.protocol.releases import UpdateFacts

FAULT_CHARACTERS_MAX: Final = 200


class DeviceKind(StrEnum):
    """What a device is: a whole GPU, or a share of the processor where there is none."""

    GPU = "gpu"
    CPU = "cpu"


class DeviceFacts(Account):
    """One device as the agent found it."""

    uuid: str = Field(min_length=1, max_length=96)  # NVML's UUID, or "cpu-<node key prefix>-<index>"
    index: Whole = Field(ge=0, lt=DEVICES_PER_NODE_MAX)
    kind: DeviceKind
    model: str = Field(min_length=1, max_length=120)
    memory_mib: Count = Field(gt=0)
    details: dict[DetailName, Detail] = Field(default_factory=dict, max_length=DETAILS_MAX)  # driver, PCIe, cores, ...
    fault: str = Field(default="", max_length=FAULT_CHARACTERS_MAX)  # why it may not be rented now; empty: healthy


class NodeFacts(Account):
    """The machine as the agent found it; the server believes only what it demanded."""

    agent_version: str = Field(max_length=40)
    operating_system: str = Field(max_length=120)
    kernel: str = Field(max_length=120)
    cpu_model: str = Field(max_length=120)
    cpu_count: SmallCount = Field(gt=0)
    memory_mib: Count = Field(gt=0)
    disk_free_mib: Count
    executor: Literal["process", "docker"]
    engine_version: str = Field(default="", max_length=80)
    isolation: Literal["none", "runc", "gvisor"] = "none"
    allows_strangers: bool = False  # without isolation: programs of other organisations than its provider's too
    egress: bool = False  # programs that ask for it may reach public addresses
    lent: list[Annotated[str, Field(pattern=LABEL_PATTERN)]] = Field(default_factory=list, max_length=LENT_MAX)
    disk_bytes_per_second: Count = 0  # written and flushed; 0: not measured
    bandwidth_bytes_per_second: Count = 0  # from the marketplace; 0: not measured
    gang: GangKind = ""  # how its programs can reach those of other nodes
    fabric_key: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")  # X25519: what its gangs' members know it by
    updates: UpdateFacts = UpdateFacts()
    has_token_receipts: bool = False  # its agent signs for a chain, a contract and parties: it may be paid in tokens
    is_server: bool = False  # its agent opens tunnels to gateways: it may serve
    shm_mib: Count = 0  # /dev/shm of programs on all devices together; a lease has its devices' share
    runtime_features: list[Annotated[str, Field(max_length=40)]] = Field(
        default_factory=list, max_length=RUNTIME_FEATURES_MAX
    )  # what its runtimes know that earlier ones did not, such as train.ddp
    devices: list[DeviceFacts] = Field(min_length=1, max_length=DEVICES_PER_NODE_MAX)


def leases_memory_mib(memory_mib: int) -> int:
    """MiB that the leases of all devices of a node with so much memory share."""
    return memory_mib - min(MEMORY_RESERVE_MIB, memory_mib // 4)


class OfferTerms(Message):
    """What the provider asks for the devices of a node."""

    price_usd_micros_per_device_hour: Whole = Field(gt=0, le=PRICE_USD_MICROS_MAX)
    seconds_min: SmallCount = 60
    seconds_max: SmallCount = Field(default=7 * 24 * 3600, gt=0)
    region: str = Field(default="unknown", pattern=r"^[a-z0-9-]{1,32}$")
    available_until: Moment | None = None


class DeviceMeasurement(Message):
    """What runtimes/probe measured: FLOP/s per dtype with all devices of the node busy at once."""

    uuid: str = Field(min_length=1, max_length=96)
    flops_per_second: dict[DetailName, Measure] = Field(
        max_length=DETAILS_MAX
    )  # dtype ("float32", "bfloat16") -> FLOP/s
    memory_bytes_per_second: Measure
    seconds: Measure


class EnrolRequest(Message):
    """Turns a single-use token into a node. `proof` is a transport-key signature over `enrol_proof_bytes`."""

    protocol: SmallCount
    token: str = Field(min_length=16, max_length=200)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$")
    transport_public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    receipt_address: str = Field(pattern=r"^0x[0-9a-fA-F]{40}$")
    proof: Signature
    receipt_proof: Signature  # signature of the receipt key over the same bytes (EIP-191)
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

    probe_version: SmallCount
    devices: list[DeviceMeasurement] = Field(min_length=1, max_length=DEVICES_PER_NODE_MAX)
