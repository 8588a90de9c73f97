"""Demand and what came of it: quotes, jobs, attempts, leases, their streams, artifacts; endpoints."""

from jobs.models.artifacts import Artifact, ArtifactKind, ArtifactPart
from jobs.models.audits import Audit, WrongReplica
from jobs.models.delegations import ReceiptDelegation
from jobs.models.demand import Job, PaymentMode, Quote
from jobs.models.leases import Attempt, Lease, LeaseDevice
from jobs.models.prices import PriceHalt, PriceLock
from jobs.models.serving import Endpoint, EndpointVersion, Gateway, Replica
from jobs.models.streams import Stream, StreamChunk

__all__ = [
    "Artifact",
    "ArtifactKind",
    "ArtifactPart",
    "Attempt",
    "Audit",
    "Endpoint",
    "EndpointVersion",
    "Gateway",
    "Job",
    "Lease",
    "LeaseDevice",
    "PaymentMode",
    "PriceHalt",
    "PriceLock",
    "Quote",
    "ReceiptDelegation",
    "Replica",
    "Stream",
    "StreamChunk",
    "WrongReplica",
]
