"""The reasons for which a node does not take a job, in the order in which they are asked."""

from __future__ import annotations

from enum import StrEnum

ONLINE = "online"  # the one state of a node in which it takes something


class Why(StrEnum):
    """Why a node does not take a job, in the order in which it is asked."""

    PENDING = "pending"
    SILENT = "silent"
    OFFLINE = "offline"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    UNMEASURED = "unmeasured"
    NO_OFFER = "no_offer"
    KIND = "kind"
    MODEL = "model"
    MEMORY = "memory"
    DTYPE = "dtype"
    GPUS = "gpus"
    EXECUTOR = "executor"
    REGION = "region"
    PRICE = "price"
    TOO_SHORT = "too_short"
    FABRIC = "fabric"
    TOO_LONG = "too_long"
    DEADLINE = "deadline"
    COST = "cost"
    BUSY = "busy"
    RESERVED = "reserved"


ORDER = {why: number for number, why in enumerate(Why)}
# States of a node in which it takes nothing.
STATE_REASONS = {why.value: why for why in (Why.PENDING, Why.SILENT, Why.OFFLINE, Why.DRAINING, Why.QUARANTINED)}
