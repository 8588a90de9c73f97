"""The reasons for which a node does not take a job, in the order in which they are looked for."""

from __future__ import annotations

from enum import StrEnum

ONLINE = "online"  # the one state of a node in which it takes something


class Why(StrEnum):
    """Why a node does not take a job, in the order in which it is looked for."""

    PENDING = "pending"
    SILENT = "silent"
    OFFLINE = "offline"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    SUSPENDED = "suspended"
    CLOSED = "closed"
    UNMEASURED = "unmeasured"
    NO_OFFER = "no_offer"
    KIND = "kind"
    MODEL = "model"
    MEMORY = "memory"
    COMPUTE_CAPABILITY = "compute_capability"
    CUDA = "cuda"
    DTYPE = "dtype"
    GPUS = "gpus"
    CPUS = "cpus"
    RAM = "ram"
    DISK = "disk"
    SHM = "shm"
    EXECUTOR = "executor"
    ISOLATION = "isolation"
    OWN_JOBS = "own_jobs"
    EGRESS = "egress"
    LENT = "lent"
    OLD_AGENT = "old_agent"
    NO_SERVING = "no_serving"
    OLD_RUNTIME = "old_runtime"
    WALLET = "wallet"
    NOT_ALLOWED = "not_allowed"
    REGION = "region"
    PRICE = "price"
    TOO_SHORT = "too_short"
    FABRIC = "fabric"
    LINK = "link"
    UNPROBED = "unprobed"
    TOO_LONG = "too_long"
    WINDOW = "window"
    DEADLINE = "deadline"
    COST = "cost"
    BUSY = "busy"
    RESERVED = "reserved"


ORDER = {why: number for number, why in enumerate(Why)}
# States of a node in which it takes nothing.
_STATES = (Why.PENDING, Why.SILENT, Why.OFFLINE, Why.DRAINING, Why.QUARANTINED, Why.SUSPENDED, Why.CLOSED)
STATE_REASONS = {why.value: why for why in _STATES}
