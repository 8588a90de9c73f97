"""Demand and what came of it: quotes, jobs, attempts, leases, streams, artifacts; endpoints, their keys and use.

demand.py       Quote, Job
leases.py       Attempt, Lease, LeaseDevice
prices.py       PriceLock, PriceHalt
delegations.py  ReceiptDelegation
artifacts.py    Artifact, ArtifactPart, ArtifactCopy, JobInput, StorageQuota, StorageCharge
evaluations.py  FollowingEvaluation
streams.py      StreamChunk
curves.py       Curve, CurvePoint
plan_checks.py  PlanCheck
serving.py      Endpoint, EndpointVersion, Replica
volumes.py      Volume, VolumeVersion
usage.py        keys of endpoints, token use and its payments
audits.py       Audit, WrongReplica
querysets.py    the queries of these rows
"""

from jobs.models.artifacts import (
    Artifact,
    ArtifactCopy,
    ArtifactKind,
    ArtifactPart,
    JobInput,
    StorageCharge,
    StorageQuota,
)
from jobs.models.audits import Audit, WrongReplica
from jobs.models.curves import Curve, CurvePoint
from jobs.models.delegations import ReceiptDelegation
from jobs.models.demand import Job, PaymentMode, Quote
from jobs.models.evaluations import FollowingEvaluation
from jobs.models.leases import Attempt, Lease, LeaseDevice
from jobs.models.plan_checks import PlanCheck
from jobs.models.prices import PriceHalt, PriceLock
from jobs.models.serving import Endpoint, EndpointMinute, EndpointVersion, Gateway, Replica, ReplicaMinute
from jobs.models.streams import Stream, StreamChunk
from jobs.models.usage import (
    EndpointKey,
    KeySlice,
    LeaseStatement,
    LeaseUse,
    UsageAside,
    UsageDay,
    UsagePayment,
    UsageRecord,
    UsageRemainder,
)
from jobs.models.volumes import Volume, VolumeVersion

__all__ = [
    "Artifact",
    "ArtifactCopy",
    "ArtifactKind",
    "ArtifactPart",
    "Attempt",
    "Audit",
    "Curve",
    "CurvePoint",
    "Endpoint",
    "EndpointKey",
    "EndpointMinute",
    "EndpointVersion",
    "FollowingEvaluation",
    "Gateway",
    "Job",
    "JobInput",
    "KeySlice",
    "Lease",
    "LeaseDevice",
    "LeaseStatement",
    "LeaseUse",
    "PaymentMode",
    "PlanCheck",
    "PriceHalt",
    "PriceLock",
    "Quote",
    "ReceiptDelegation",
    "Replica",
    "ReplicaMinute",
    "StorageCharge",
    "StorageQuota",
    "Stream",
    "StreamChunk",
    "UsageAside",
    "UsageDay",
    "UsagePayment",
    "UsageRecord",
    "UsageRemainder",
    "Volume",
    "VolumeVersion",
    "WrongReplica",
]
