"""States of a job, a lease and an artifact; an attempt's are the protocol's.

job       queued -> placed -> running -> completed
          placed | running -> recovering -> placed          a node was lost; the job goes on elsewhere
          running -> paused -> queued                       the budget was used up; it goes on with a higher one
          queued | placed | running | recovering | paused -> failed
          every state that is not an end -> cancelled
lease     reserved -> active -> ended;   reserved -> ended
replica   starting -> ready -> draining -> gone;   ready -> starting;   each before the end -> gone
version   starting -> live -> retired;   starting | live -> rolled_back
artifact  uploading -> complete -> deleted;   uploading -> abandoned -> deleted
"""

from __future__ import annotations

from django.db import models

from marketplace.foundation.states import machine
from provider_agent.protocol import ATTEMPT_ENDS, ATTEMPT_TRANSITIONS, AttemptState


class JobState(models.TextChoices):
    """Where a job is; whether it is paid is the ledger's matter."""

    QUEUED = "queued"
    PLACED = "placed"
    RUNNING = "running"
    RECOVERING = "recovering"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_J = JobState
JOB_MACHINE = machine(
    "job",
    {
        _J.QUEUED: [_J.PLACED, _J.FAILED, _J.CANCELLED],
        _J.PLACED: [_J.RUNNING, _J.RECOVERING, _J.FAILED, _J.CANCELLED],
        _J.RUNNING: [_J.COMPLETED, _J.RECOVERING, _J.PAUSED, _J.FAILED, _J.CANCELLED],
        _J.RECOVERING: [_J.PLACED, _J.FAILED, _J.CANCELLED],
        _J.PAUSED: [_J.QUEUED, _J.FAILED, _J.CANCELLED],
        _J.COMPLETED: [],
        _J.FAILED: [],
        _J.CANCELLED: [],
    },
)
JOB_ENDS = frozenset({_J.COMPLETED, _J.FAILED, _J.CANCELLED})
JOB_WAITING = frozenset({_J.QUEUED, _J.RECOVERING})  # wants to be placed
JOB_ON_NODES = frozenset({_J.PLACED, _J.RUNNING})  # has a live attempt


class LeaseState(models.TextChoices):
    """reserved: the devices are taken. active: the agent has answered. ended: they are free again."""

    RESERVED = "reserved"
    ACTIVE = "active"
    ENDED = "ended"


LEASE_MACHINE = machine(
    "lease",
    {
        LeaseState.RESERVED: [LeaseState.ACTIVE, LeaseState.ENDED],
        LeaseState.ACTIVE: [LeaseState.ENDED],
        LeaseState.ENDED: [],
    },
)
LEASE_LIVE = frozenset({LeaseState.RESERVED, LeaseState.ACTIVE})

ATTEMPT_MACHINE = machine("attempt", {str(state): ATTEMPT_TRANSITIONS.get(state, ()) for state in AttemptState})
ATTEMPT_CHOICES = [(state.value, state.value) for state in AttemptState]
ATTEMPT_LIVE = frozenset(set(AttemptState) - ATTEMPT_ENDS)


class ReplicaState(models.TextChoices):
    """starting: no gateway reaches it yet, or any more. ready: it is given requests. draining: no new ones."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


_R = ReplicaState
REPLICA_MACHINE = machine(
    "replica",
    {
        _R.STARTING: [_R.READY, _R.DRAINING, _R.GONE],
        _R.READY: [_R.STARTING, _R.DRAINING, _R.GONE],
        _R.DRAINING: [_R.GONE],
        _R.GONE: [],
    },
)
REPLICA_LIVE = frozenset({_R.STARTING, _R.READY, _R.DRAINING})


class VersionState(models.TextChoices):
    """starting: its first replica is not ready. live: it has a share. retired: a newer one has all."""

    STARTING = "starting"
    LIVE = "live"
    RETIRED = "retired"
    ROLLED_BACK = "rolled_back"


# The former name of `rolled_back`. For one version more the database takes it from processes that still run old code;
# then a migration renames the rows, and the edges to it go.
ROLLED_BACK_FORMERLY = "taken_back"
VERSION_ROLLED_BACK = (VersionState.ROLLED_BACK, ROLLED_BACK_FORMERLY)

_V = VersionState
VERSION_MACHINE = machine(
    "version",
    {
        _V.STARTING: [_V.LIVE, _V.RETIRED, _V.ROLLED_BACK, ROLLED_BACK_FORMERLY],
        _V.LIVE: [_V.RETIRED, _V.ROLLED_BACK, ROLLED_BACK_FORMERLY],
        _V.RETIRED: [],
        _V.ROLLED_BACK: [],
        ROLLED_BACK_FORMERLY: [_V.ROLLED_BACK],
    },
)


class ArtifactState(models.TextChoices):
    """complete: the manifest was accepted and every byte is there; nothing else makes it so."""

    UPLOADING = "uploading"
    COMPLETE = "complete"
    ABANDONED = "abandoned"
    DELETED = "deleted"


ARTIFACT_MACHINE = machine(
    "artifact",
    {
        ArtifactState.UPLOADING: [ArtifactState.COMPLETE, ArtifactState.ABANDONED],
        ArtifactState.COMPLETE: [ArtifactState.DELETED],
        ArtifactState.ABANDONED: [ArtifactState.DELETED],
        ArtifactState.DELETED: [],
    },
)
