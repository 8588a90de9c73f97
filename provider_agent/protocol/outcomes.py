"""States of an attempt, and every reason for its end with its fault and who pays."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


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
    BAD_CHECKPOINT = "bad_checkpoint"  # what another attempt saved; see jobs/artifacts/resumes.py
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
    REPLICA_RETIRED = "replica_retired"
    REPLICA_UNHEALTHY = "replica_unhealthy"
    REPLICA_WRONG = "replica_wrong"
    FALSE_REASON = "false_reason"  # the node named a stop that nobody had ordered; never sent to an agent
    NOT_JOINED = "not_joined"  # the gang did not grow after all, before this lease had joined it; the same
    INTERNAL = "internal"


# The marketplace's own words for ends: an agent from before them could not read them, so none is sent one.
SERVER_ALONE: Final = frozenset({Reason.FALSE_REASON, Reason.NOT_JOINED})


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
    Reason.BAD_CHECKPOINT: Outcome(_S.FAILED, True, _B.NOTHING, _F.NOBODY),
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
    Reason.REPLICA_RETIRED: Outcome(_S.CANCELLED, False, _B.OBSERVED, _F.NOBODY),
    Reason.REPLICA_UNHEALTHY: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.REPLICA_WRONG: Outcome(_S.FAILED, True, _B.NOTHING, _F.PROVIDER),
    Reason.FALSE_REASON: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PROVIDER),
    Reason.NOT_JOINED: Outcome(_S.CANCELLED, False, _B.NOTHING, _F.NOBODY),
    Reason.INTERNAL: Outcome(_S.FAILED, True, _B.CHECKPOINT, _F.PLATFORM),
}
