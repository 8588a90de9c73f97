"""What one job demands, as the matcher reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

UNISOLATED = "none"  # of a node: programs run as plain processes; of a job: that will do
# resources.isolation of a job file -> what its node must have; empty: nothing.
ISOLATIONS: dict[str, tuple[str, ...]] = {UNISOLATED: (), "container": ("runc", "gvisor"), "gvisor": ("gvisor",)}


@dataclass(frozen=True, slots=True)
class Demand:
    """Everything about a job that decides where it fits and what it costs. Equal demands are solved once."""

    devices: int  # per node
    nodes: int = 1
    kind: str | None = None  # "gpu", "cpu"; None: either
    models: tuple[str, ...] = ()  # any of them; empty: every model
    memory_mib: int = 0  # per device, at least
    memory_floor_mib: int = 0  # below that the program runs out of memory for certain
    cuda: tuple[int, int] = (0, 0)  # (major, minor) that the driver supports, at least; (0, 0): any
    compute_capability: tuple[int, int] = (0, 0)  # of the devices, at least; (0, 0): any
    cpus: int = 0  # cores of each node, at least
    ram_mib: int = 0  # of each node's memory, at least
    disk_mib: int = 0  # of each node's free disk, at least
    shm_mib: int = 0  # of /dev/shm on each node, at least; 0: what it has by itself
    regions: tuple[str, ...] = ()  # any of them; empty: everywhere
    executors: tuple[str, ...] = ()  # any of them; empty: every executor
    isolations: tuple[str, ...] = ()  # any of them; empty: every one, none too
    organisation_id: UUID | None = None  # whose job, where a node that isolates nothing may take it; else None
    needs_egress: bool = False  # the program reaches for the internet
    lent: frozenset[str] = frozenset()  # labels of folders, all of which the node must lend
    needs_token_receipts: bool = False  # paid in a token: the agent signs for its chain and contract
    wallet_for: str = ""  # a token whose contract pays: it has to know the provider's wallet; empty: it does not pay
    only_nodes: frozenset[UUID] | None = None  # those whose provider the customer's wallet allows; None: any
    needs_serving: bool = False  # the agent knows how to open a tunnel
    runtime_features: frozenset[str] = frozenset()  # what the node's runtime must know beyond its first version
    dtype: str = "auto"
    work_flops: float | None = None  # None: the job declares no work
    checkpoint_seconds: float = 0  # 0: not by time
    checkpoint_share: float = 0  # part of the work between two checkpoints; 0: not by steps
    price_ceiling_usd_micros: int | None = None  # per device and hour
    cap_usd_micros: int | None = None  # what completing may be expected to cost at most
    seconds_left: float | None = None  # until the deadline
    avoid: frozenset[UUID] = frozenset()  # nodes that lost this job before: taken last


def is_accepted(isolation: str, *, is_own: bool, allows_strangers: bool, isolations: tuple[str, ...]) -> bool:
    """Whether a node may run a program: both its customer and, where nothing isolates it, the node's provider agree.

    `isolation` is the node's, `isolations` are those that the job accepts. A provider agrees to the programs of its own
    organisation, and by `--allow-strangers` to everybody's.
    """
    if isolations and isolation not in isolations:
        return False
    return isolation != UNISOLATED or is_own or allows_strangers


@dataclass(frozen=True, slots=True)
class MatchRequest:
    """One job that waits for a place. `key` names it in the answer."""

    key: str
    demand: Demand
    priority: int = 50
    queued_at: datetime | None = None  # first come, first served within a priority
    turn: int = 0  # before that: organisations take turns within a priority
    organisation_id: UUID | None = None


def flops_of(measured: Mapping[str, float], kind: str, dtype: str) -> float:
    """Measured FLOP/s of a device in the type that the job will compute in; 0 where that was not measured.

    `auto` is what the built-in runtime does: bfloat16 on a GPU that has it, else float32.
    """
    if dtype != "auto":
        return measured.get(dtype, 0.0)
    if kind == "gpu" and measured.get("bfloat16", 0.0) > 0:
        return measured["bfloat16"]
    return measured.get("float32", 0.0)
