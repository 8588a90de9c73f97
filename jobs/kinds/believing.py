"""Which reason counts for a lease whose node reports its end: what the marketplace can see itself it does not ask.

    the node names a stop          the marketplace ordered one: its order names the reason
                                   it ordered none: a lie, FALSE_REASON; of a budget, where that may really be used up
                                   by the node's own meter, the truth or nobody's fault
    our program ended by a signal  the node's doing, or another node's: never the customer's
    a resumed one has bad input    its checkpoint, which another node saved: never the customer's
    or no memory for a step        nobody's: it may be the checkpoint, or a smaller node
    the node names another end     believed, as an order may cross it; but a node in quarantine is paid for no end

What remains of a node's word is how its own program ended.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from jobs.models import Lease
from jobs.states import ArtifactState
from marketplace.foundation import clock
from provider_agent.protocol import BEAT_SECONDS_LEASED, REASONS, Billable, Fault, Reason, payable_ms

LEASE_SECONDS_MAX: Final = 30 * 24 * 3600  # that an assignment lets a program run, whatever its cap pays for
BUDGET_MARGIN_SECONDS: Final = 30  # before the cap is used up, so that a last checkpoint can be saved
BUDGET_MARGIN_SHARE: Final = 0.05  # and at most this share of what the cap pays for
SIGNAL_CODE_BASE: Final = 128  # an exit code above it: the number of the signal that ended the program

# Nothing on a node causes these: a node that names one was ordered to stop for it, or lies.
ORDERED: Final = frozenset(
    {
        Reason.CANCELLED_BY_CUSTOMER,
        Reason.CANCELLED_BY_OPERATOR,
        Reason.DEADLINE_EXCEEDED,
        Reason.BUDGET_EXHAUSTED,  # a node's own meter may come first: see `_unordered_budget`
        Reason.NODE_SILENT,
        Reason.NODE_QUARANTINED,
        Reason.GANG_BROKEN,
        Reason.NEVER_STARTED,
        Reason.REPLICA_RETIRED,
        Reason.REPLICA_UNHEALTHY,
        Reason.REPLICA_WRONG,
        Reason.FALSE_REASON,
    }
)


def believe(lease: Lease, reason: Reason) -> Reason:
    """The reason that counts, of a lease whose node reports `reason` for its end now.

    `lease` as it is under its job's lock, with what the server has observed up to this report.
    """
    ordered = Reason(lease.stop_reason) if lease.stop_reason else None
    if reason in ORDERED:
        return ordered or _unordered(lease, reason)
    if ordered == Reason.NODE_QUARANTINED and REASONS[reason].billable == Billable.OBSERVED:
        return ordered
    return reason


def without_signals(reason: Reason, exit_code: int | None) -> Reason:
    """The same, of a program of ours: it sends itself no signals, so one that ended it is never its customer's fault.

    Agents of before called most of them `exit_nonzero`.
    """
    if reason == Reason.EXIT_NONZERO and (exit_code or 0) > SIGNAL_CODE_BASE:
        return Reason.PROCESS_VANISHED
    return reason


def of_resumed(lease: Lease, reason: Reason) -> Reason:
    """The same, of an attempt that began from a checkpoint: what our runtime cannot use is that.

    The input and the configuration are the job's, and an attempt before this one read them. Agents of before called it
    `bad_input`. Where there was no checkpoint, or this attempt saved one of its own behind it, the word is a lie.
    """
    attempt, is_ours = lease.attempt, not lease.attempt.job.spec.get("command")
    has_resumed = attempt.artifacts.filter(kind="checkpoint", state=ArtifactState.COMPLETE).exists()
    if reason == Reason.OUT_OF_MEMORY and is_ours and attempt.resume_artifact_id is not None:
        # An attempt before this one had memory for each step: before its own first one it is not the customer's fault.
        return reason if has_resumed or _has_stepped(lease) else Reason.INTERNAL
    if reason not in {Reason.BAD_INPUT, Reason.BAD_CONFIG, Reason.BAD_CHECKPOINT}:
        return reason
    if is_ours and attempt.resume_artifact_id is not None and not has_resumed:
        return Reason.BAD_CHECKPOINT
    return Reason.FALSE_REASON if reason == Reason.BAD_CHECKPOINT else reason


def is_spent(lease: Lease) -> bool:
    """Whether the server saw a lease run for so long that its cap is about to be used up."""
    limit_ms = payable_ms(lease.rate_units_per_hour, lease.cap_units)
    return _comes_near(lease.observed_ms, limit_ms)


def _has_stepped(lease: Lease) -> bool:
    """Whether the events of this attempt, which its node sends, came to a step."""
    progress = lease.attempt.job.progress
    return progress.get("attempt") == lease.attempt.number and progress.get("step") is not None


def _unordered(lease: Lease, reason: Reason) -> Reason:
    if reason == Reason.BUDGET_EXHAUSTED:
        return _unordered_budget(lease)
    # One that costs nobody but the node itself is no lie worth a fine: the node broke the attempt, and said so.
    return Reason.EXECUTOR_FAILED if REASONS[reason].fault == Fault.PROVIDER else Reason.FALSE_REASON


def _unordered_budget(lease: Lease) -> Reason:
    """An agent's meter may see the end of a cap before the marketplace does, which may have been away meanwhile."""
    limit_ms = min(payable_ms(lease.rate_units_per_hour, lease.cap_units), LEASE_SECONDS_MAX * 1000)
    if _comes_near(lease.observed_ms, limit_ms):
        return Reason.BUDGET_EXHAUSTED
    active_ms = (clock.now() - (lease.active_at or clock.now())) // timedelta(milliseconds=1)
    return Reason.INTERNAL if _comes_near(active_ms, limit_ms) else Reason.FALSE_REASON


def _comes_near(ran_ms: int, limit_ms: int) -> bool:
    margin_ms = min(BUDGET_MARGIN_SECONDS * 1000, limit_ms * BUDGET_MARGIN_SHARE)
    return ran_ms + BEAT_SECONDS_LEASED * 1000 >= limit_ms - margin_ms
