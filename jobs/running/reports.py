"""Agents' reports of leases move attempts and jobs.

    apply_reports    one sync of one node: signs of life, first states, ends
    lose_still       a node whose program neither moves nor starts is not waited for
    lose_unjoined    nor is one that joined a gang and does not come up
    conclude         when every lease of an attempt has ended and its streams and receipts are in, finish the attempt

A report is believed only from the lease's own node and with the lease's own fence; a repeat changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from billing.charging import metering
from jobs import lifecycle
from jobs.artifacts import resumes
from jobs.kinds.registry import kind_of
from jobs.leases import joining, leasing
from jobs.leases.fencing import has_fence
from jobs.models import Attempt, Job, Lease
from jobs.running import causes, generations, resizing, suspicions
from jobs.running.preparing import PREPARE_SECONDS_MAX, PREPARING_SECONDS_MAX, is_still
from jobs.running.streams import DRAIN_SECONDS_MAX
from jobs.states import JOB_ON_NODES, LEASE_LIVE, LeaseState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.states import advance
from marketplace.nodes.models import Node
from provider_agent.protocol import (
    ATTEMPT_ENDS,
    MESSAGE_CHARACTERS_MAX,
    REASONS,
    AttemptState,
    LeaseReport,
    Reason,
    without_node_paths,
)

log = logging.getLogger(__name__)

_ALIVE = frozenset({AttemptState.RUNNING, AttemptState.STOPPING})
_FOLLOWS = ("follows_generations", "follows_sizes")  # of a report, and of its lease
_LOST_REASONS = frozenset({Reason.NODE_SILENT, Reason.LEASE_EXPIRED})


def apply_reports(
    node: Node, reports: Sequence[LeaseReport], *, boot_id: UUID, received_at: datetime, signed_ms: int | None = None
) -> None:
    """Apply a node's reports of its leases; harmless to repeat, and a report with a stale fence is skipped.

    `signed_ms`: when the node signed it; only the newest can prove that a lease is absent. An error in one lease's
    report does not stop the others.
    """
    if node.boot_id != boot_id:
        Node.objects.filter(pk=node.pk).update(boot_id=boot_id)
    leases = {lease.id: lease for lease in Lease.objects.live().filter(node=node).select_related("attempt")}
    accepted = [report for report in reports if _is_accepted(leases.get(report.lease_id), report)]
    # 1. Signs of life, in one statement: the lease goes on, and what runs was seen to run until now.
    ids = [report.lease_id for report in accepted]
    running = [report.lease_id for report in accepted if report.state in _ALIVE]
    leasing.extend(ids, now=received_at)
    Lease.objects.live().filter(pk__in=running, running_at__isnull=False).update(
        observed_until=Greatest(F("observed_until"), received_at)
    )
    for name in _FOLLOWS:
        following = [report.lease_id for report in accepted if getattr(report, name)]
        if any(not getattr(leases[lease_id], name) for lease_id in following):
            Lease.objects.live().filter(pk__in=following).update(**{name: True})
    lost_peers = [report for report in accepted if report.lost_peer and report.state == AttemptState.RUNNING]
    suspicions.suspect(
        lease
        for report in lost_peers
        if (lease := leases[report.lease_id]).attempt.generation == report.generation and lease.follows_generations
    )
    # 2. What is new moves the states, one job at a time.
    for report in accepted:
        if _is_news(leases[report.lease_id], report):
            with log_failures("A report was not taken in.", lease_id=str(report.lease_id)):
                _apply(leases[report.lease_id].attempt.job_id, report, received_at)
    # 3. A boot that does not know a lease which an earlier boot had taken has lost it.
    reported = {report.lease_id for report in reports}
    for lease in leases.values():
        if lease.state == LeaseState.ACTIVE and lease.id not in reported and lease.reported_state not in ATTEMPT_ENDS:
            with log_failures("A vanished lease was not lost.", lease_id=str(lease.id)):
                lose(
                    lease.id,
                    Reason.PROCESS_VANISHED,
                    "The node's agent no longer knows this lease.",
                    signed_ms=signed_ms,
                )


def lose(lease_id: UUID, reason: Reason, message: str, *, signed_ms: int | None = None) -> None:
    """Declare a live lease lost in its node's absence, and finish its attempt when nothing else is to wait for.

    Where a sync signed at `signed_ms` reported it, it does not count once a newer one was applied.
    """
    with transaction.atomic():
        job = lifecycle.lock(Lease.objects.get(pk=lease_id).attempt.job_id)
        lease = Lease.objects.select_related("attempt").get(pk=lease_id)
        if lease.state not in LEASE_LIVE or lease.reported_state in ATTEMPT_ENDS:
            return
        if signed_ms is not None and Node.objects.filter(pk=lease.node_id, synced_ms__gt=signed_ms).exists():
            return
        Lease.objects.filter(pk=lease_id).update(
            reported_state=REASONS[reason].state.value,
            reported_reason=reason.value,
            reported_message=message,
            reported_at=clock.now(),
        )
        conclude(job, lease.attempt)


def lose_still(lease_id: UUID) -> bool:
    """End a lease that prepares and does not move, unpaid; returns False where it moves, or has ended, after all."""
    with transaction.atomic():
        lifecycle.lock(Lease.objects.get(pk=lease_id).attempt.job_id)
        if not is_still(Lease.objects.select_related("attempt__job").get(pk=lease_id)):
            return False
        minutes, hours = PREPARE_SECONDS_MAX // 60, PREPARING_SECONDS_MAX // 3600
        message = f"Before the first step nothing moved for {minutes} minutes, or it took longer than {hours} hours."
        lose(lease_id, Reason.NEVER_STARTED, message)
        return True


def lose_unjoined(lease_id: UUID) -> bool:
    """End a lease that joined its gang and does not come up, unpaid; returns False where it has, after all."""
    with transaction.atomic():
        lifecycle.lock(Lease.objects.get(pk=lease_id).attempt.job_id)
        if not resizing.unjoined().filter(pk=lease_id).exists():
            return False
        lose(lease_id, Reason.NEVER_STARTED, "It joined the gang, and its program did not come up.")
        return True


def conclude(job: Job, attempt: Attempt) -> bool:
    """Finish a live attempt of a locked job once all of its leases have ended; returns whether it did.

    One lease that ended badly brings the others down with it, unless another node takes its place or they may go on
    without it: a gang runs whole or not at all. One that only waited to join the gang changes nothing.
    """
    if job.state not in JOB_ON_NODES:
        return False
    came_to_nothing = attempt.leases.joining().filter(reported_state__in=ATTEMPT_ENDS)
    if came_to_nothing and all(map(is_drained, came_to_nothing)):
        joining.give_up(attempt)
    leases = list(attempt.leases.members().order_by("node_rank"))
    ended = [lease for lease in leases if lease.reported_state in ATTEMPT_ENDS]
    broken = [lease for lease in ended if lease.reported_state != AttemptState.SUCCEEDED]
    if broken and len(ended) < len(leases):
        if generations.waits_for_others(job, attempt):
            return False
        is_shrinking = resizing.may_shrink(job, attempt)
        if is_shrinking and (not all(map(is_drained, ended)) or resizing.shrink(job, attempt, ended)):
            return False
        lifecycle.stop_leases([lease for lease in leases if lease not in ended], Reason.GANG_BROKEN)
    if len(ended) < len(leases) or not ended:
        return False
    if not all(is_drained(lease) for lease in ended):
        return False
    causes.blame_checkpoint(attempt, broken)
    first = causes.first_cause(broken) if broken else ended[0]
    causes.clear_followers(broken, first)
    if first.reported_reason == Reason.BAD_CHECKPOINT:
        resumes.judge_failed(attempt, exit_code=first.exit_code)
    lifecycle.finish_attempt(
        job, attempt, Reason(first.reported_reason), message=first.reported_message, exit_code=first.exit_code
    )
    return True


def _apply(job_id: UUID, report: LeaseReport, received_at: datetime) -> None:
    with transaction.atomic():
        job = lifecycle.lock(job_id)
        lease = Lease.objects.select_related("attempt__job", "node").get(pk=report.lease_id)
        if not _is_accepted(lease, report) or not _is_news(lease, report):
            return
        attempt = lease.attempt
        if lease.state == LeaseState.RESERVED:
            advance(lease, LeaseState.ACTIVE, active_at=received_at)
        if lease.is_joining and report.state in _ALIVE:  # it may in the gang's next generation, and not before
            lose(lease.pk, Reason.EXECUTOR_FAILED, "The program ran before it had joined its gang.")
            return
        seen: dict[str, object] = {}
        if report.state in _ALIVE and lease.running_at is None:
            seen = {"running_at": received_at, "observed_until": received_at}
        elif report.state in ATTEMPT_ENDS and lease.running_at is not None:
            seen = {"observed_until": max(received_at, lease.observed_until or received_at)}
        for name, value in seen.items():
            setattr(lease, name, value)
        end = _end_of(job, lease, report) if report.state in ATTEMPT_ENDS else {}
        Lease.objects.filter(pk=lease.pk).update(
            **{"reported_state": report.state.value, "reported_reason": "", "reported_message": _text(report)} | end,
            exit_code=report.exit_code,
            reported_at=received_at,
            **seen,
        )
        _move_attempt(job, attempt)
        generations.pay_again(attempt)
        conclude(job, attempt)


def _end_of(job: Job, lease: Lease, report: LeaseReport) -> dict[str, object]:
    """What is kept of a reported end: the reason that counts, beside what the node called it where that differs."""
    claimed = report.reason or _default_reason(report)
    reason, message = kind_of(job).believed_reason(lease, claimed, exit_code=report.exit_code), _text(report)
    if reason != claimed:
        log.warning("A node's reason was not believed. lease_id=%s claimed=%s counts=%s", lease.pk, claimed, reason)
        message = f"The node reported {claimed.value}; what counts is {reason.value}. {message}".strip()
    return {
        "reported_state": REASONS[reason].state.value,
        "reported_reason": reason.value,
        "reported_message": message[:MESSAGE_CHARACTERS_MAX],
        "log_bytes_final": report.log_bytes,
        "event_bytes_final": report.event_bytes,
        "receipt_seq_final": report.receipt_seq,
    }


def _text(report: LeaseReport) -> str:
    return without_node_paths(report.message.replace("\0", "\ufffd"), report.reason)


def _move_attempt(job: Job, attempt: Attempt) -> None:
    """The attempt is as far as its slowest lease."""
    states = set(attempt.leases.members().values_list("reported_state", flat=True))
    up = {AttemptState.RUNNING.value, AttemptState.STOPPING.value, AttemptState.SUCCEEDED.value}
    if attempt.state == AttemptState.ASSIGNED and states - {AttemptState.ASSIGNED.value} and not states <= up:
        if not states & {state.value for state in ATTEMPT_ENDS}:
            advance(attempt, AttemptState.PREPARING)
    elif attempt.state in {AttemptState.ASSIGNED, AttemptState.PREPARING} and states <= up:
        lifecycle.mark_running(job, attempt)
    elif attempt.state == AttemptState.RUNNING and states == {AttemptState.STOPPING.value}:
        advance(attempt, AttemptState.STOPPING)


def _is_accepted(lease: Lease | None, report: LeaseReport) -> bool:
    return lease is not None and lease.state in LEASE_LIVE and has_fence(lease, report.fence)


def _is_news(lease: Lease, report: LeaseReport) -> bool:
    """An end is final: nothing that is reported after it counts."""
    if lease.reported_state in ATTEMPT_ENDS:
        return False
    return lease.state == LeaseState.RESERVED or lease.reported_state != report.state.value


def is_drained(lease: Lease) -> bool:
    """Whether the last bytes and the last receipt are here, or will not be waited for any longer."""
    if lease.reported_reason in _LOST_REASONS or lease.reported_at is None:
        return True
    if clock.now() - lease.reported_at > timedelta(seconds=DRAIN_SECONDS_MAX):
        return True
    newest = metering.newest(lease.id)
    return (
        lease.log_bytes >= (lease.log_bytes_final or 0)
        and lease.event_bytes >= (lease.event_bytes_final or 0)
        and (newest.seq if newest else 0) >= (lease.receipt_seq_final or 0)
    )


def _default_reason(report: LeaseReport) -> Reason:
    return Reason.COMPLETED if report.state == AttemptState.SUCCEEDED else Reason.INTERNAL
