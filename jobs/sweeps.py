"""What is repaired periodically, every few seconds, where no message reported it.

    sweep_leases         reserved but never started, ordered to stop and never stopped, deadline passed, no move before
                         the first step
    sweep_jobs           ends that waited for their last bytes, budgets used up, deadlines, nodes in quarantine
                         or past their hours; holds in contracts that opened or did not, wallets to register there;
                         jobs that a token's price keeps from being placed
    sweep_checks         work is demanded of idle nodes, withdrawn where a lease came, failed where nobody answers;
                         so are probes of the links between the nodes of a fabric

What silent nodes ran is lost in `jobs/running/lost_nodes.py`.

Each looks for ids without locks, then lets a verb decide again under the job's lock.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from billing.states.chain import EscrowHoldState
from jobs import lifecycle
from jobs.errors import JobsError
from jobs.escrow import delegations, holding
from jobs.kinds.base import STOP_GRACE_SECONDS
from jobs.kinds.believing import is_spent
from jobs.kinds.registry import kind_of
from jobs.leases import joining
from jobs.leases.unpaid import close_unpaid
from jobs.models import Artifact, Attempt, Job, Lease, PriceHalt
from jobs.models.querysets import LeaseQuerySet
from jobs.placing import reasons, requotes
from jobs.running import reports, resizing
from jobs.running.preparing import PREPARE_SECONDS_MAX, is_still
from jobs.states import JOB_WAITING, LEASE_LIVE, JobState, LeaseState
from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.device_checks import checking, demands
from marketplace.nodes.fabrics import link_reports, links
from marketplace.nodes.models import Node
from marketplace.nodes.offering import schedule
from marketplace.nodes.releases import rollout
from marketplace.nodes.states import NodeState
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import ATTEMPT_ENDS, AttemptState, Reason

log = logging.getLogger(__name__)

START_SECONDS_MAX = 60  # from reserved to the agent's first report
STOP_SECONDS_MAX = STOP_GRACE_SECONDS + 60  # from the request to stop to the report of the end
SWEEP_ROWS_MAX = 1000
PRICES_FOLLOWED_MAX = 100  # a sweep, every two seconds
HOLD_FAILED = "hold_failed"  # a job's reason; no attempt ever ended for it


def sweep_leases() -> int:
    """End leases that no report will end; returns how many."""
    now = clock.now()
    live = Lease.objects.live().exclude(reported_state__in=ATTEMPT_ENDS)
    overdue = [
        (
            live.filter(state=LeaseState.RESERVED, reserved_at__lt=now - timedelta(seconds=START_SECONDS_MAX)),
            Reason.NEVER_STARTED,
            "The node did not take the assignment up.",
        ),
        (
            _unready(now).filter(is_joining=False, joined_generation=None),
            Reason.NEVER_STARTED,
            "The node was not ready in time.",
        ),
        (live.filter(lease_until__lt=now), Reason.LEASE_EXPIRED, "The lease ran out without a word of the node."),
    ]
    count = 0
    for leases, reason, message in overdue:
        for lease_id in leases.values_list("pk", flat=True)[:SWEEP_ROWS_MAX]:
            with log_failures("An overdue lease could not be ended.", lease_id=str(lease_id)):
                reports.lose(lease_id, reason, message)
                count += 1
    return count + _give_up_growths(now) + _end_still(now) + _end_unjoined() + _end_unanswered_stops(now)


def sweep_checks() -> int:
    """Demand checks and probes of nodes without a lease, whose turn it is; returns for how many nodes that is.

    They are swept here because `jobs` knows who holds a lease. Probes come first: they are short, a gang may wait for
    them, and a node never has both at once.
    """
    busy = set(Lease.objects.live().values_list("node_id", flat=True))
    if busy and settings.SOUK_SHARED_MACHINE:  # a lease on one takes the cores of all
        busy = set(Node.objects.values_list("pk", flat=True))
    changed = [
        *demands.withdraw_where_busy(busy),
        *checking.expire_overdue(),
        *link_reports.withdraw_where_busy(busy),
        *link_reports.expire_overdue(),
        *links.demand_due(busy),
        *demands.demand_due(busy),
    ]
    wake_nodes(changed)
    return len(changed)


def sweep_releases() -> int:
    """Order nodes to install the release that they should have; returns how many."""
    changed = rollout.sweep()
    wake_nodes(changed)
    return len(changed)


def sweep_jobs() -> int:
    """Finish, stop or end jobs whose time or money is up; returns how many were touched."""
    count = 0
    parts = (
        _conclude_drained,
        _pay_again,
        _stop_spent,
        _stop_late,
        _stop_quarantined,
        _stop_closed,
        _follow_holds,
        _follow_prices,
        _register_delegations,
    )
    for part in parts:
        with log_failures(f"A part of the sweep failed: {part.__name__}."):
            count += part()
    return count


def _conclude_drained() -> int:
    waiting = Attempt.objects.live().filter(leases__reported_state__in=ATTEMPT_ENDS, leases__state__in=LEASE_LIVE)
    waiting = waiting.distinct()
    count = 0
    for attempt_id, job_id in list(waiting.values_list("pk", "job_id")[:SWEEP_ROWS_MAX]):
        with log_failures("An attempt could not be finished.", job_id=str(job_id)), transaction.atomic():
            job = lifecycle.lock(job_id)
            attempt = Attempt.objects.live().filter(pk=attempt_id).first()
            count += bool(attempt and reports.conclude(job, attempt))
    return count


def _pay_again() -> int:
    """Gangs that went on in another generation, and of which all have saved a checkpoint since: all of them work."""
    later = Attempt.objects.live().filter(generation__gt=0)
    saved = Artifact.objects.complete().filter(
        attempt=OuterRef("pk"), kind="checkpoint", generation=OuterRef("generation")
    )
    count = 0
    for attempt_id, job_id in list(later.filter(Exists(saved)).values_list("pk", "job_id")[:SWEEP_ROWS_MAX]):
        with log_failures("A gang could not be paid again.", job_id=str(job_id)), transaction.atomic():
            lifecycle.lock(job_id)
            attempt = Attempt.objects.live().filter(pk=attempt_id).first()
            if attempt is not None and attempt.broken_at is None:
                count += close_unpaid(attempt)
    return count


def _stop_spent() -> int:
    """Leases that are about to use up their cap save what they have and leave; the job is paused."""
    running = Lease.objects.live().filter(running_at__isnull=False, stop_reason="")
    running = running.exclude(reported_state__in=ATTEMPT_ENDS)
    spent = [lease for lease in running.iterator(SWEEP_ROWS_MAX) if is_spent(lease)]
    lifecycle.stop_leases(spent, Reason.BUDGET_EXHAUSTED)
    return len(spent)


def _stop_late() -> int:
    late = Job.objects.unfinished().filter(deadline_at__lt=clock.now())
    count = 0
    for job_id in list(late.values_list("pk", flat=True)[:SWEEP_ROWS_MAX]):
        try:
            with transaction.atomic():
                job = lifecycle.lock(job_id)
                if job.attempts.live().exists():
                    lifecycle.stop_leases(Lease.objects.live().filter(attempt__job=job), Reason.DEADLINE_EXCEEDED)
                elif job.state in JOB_WAITING or job.state == JobState.PAUSED or kind_of(job).may_be_idle:
                    lifecycle.end_late(job)
                count += 1
        except (StateConflict, JobsError) as error:
            log.warning("A late job could not be stopped: %s", error, extra={"job_id": str(job_id)})
    return count


def _stop_quarantined() -> int:
    bad = Q(node__state__in=[NodeState.QUARANTINED, NodeState.RETIRED])
    leases = list(Lease.objects.live().filter(bad, stop_reason="")[:SWEEP_ROWS_MAX])
    lifecycle.stop_leases(leases, Reason.NODE_QUARANTINED)
    return len(leases)


def _stop_closed() -> int:
    """What took longer than expected leaves a node at the hour at which the node closes by its own declaration."""
    now = clock.now()
    bounded = Lease.objects.live().filter(stop_reason="").exclude(node__schedule={}).select_related("node")
    closed = [lease for lease in bounded[:SWEEP_ROWS_MAX] if schedule.open_seconds(schedule.of(lease.node), now) <= 0]
    lifecycle.stop_leases(closed, Reason.NODE_DRAINED)
    return len(closed)


def _follow_holds() -> int:
    """A job in escrow mode waits, and shows it, for its hold in the contract; it ends with a hold that never opened."""
    ended = 0
    for job_id in list(Job.objects.uncovered().values_list("pk", flat=True)[:SWEEP_ROWS_MAX]):
        with log_failures("A job's hold could not be followed.", job_id=str(job_id)), transaction.atomic():
            job, held = lifecycle.lock(job_id), holding.hold_of(job_id)
            if job.state not in JOB_WAITING or (held is not None and held.state == EscrowHoldState.OPEN):
                continue
            if held is None or held.state == EscrowHoldState.REQUESTED:
                reasons.show_reason(job_id, holding.waits_for(held))
                continue
            message = f"The contract does not hold the job's money: {holding.why_failed(held)}"
            lifecycle.end_job(job, JobState.FAILED, HOLD_FAILED, message=message)
            ended += 1
    return ended


def _follow_prices() -> int:
    """A job that waits for a price shows which one, and is placed again once it is known, back, or confirmed."""
    count = 0
    halted = PriceHalt.objects.order_by("?").values_list("pk", flat=True)  # those that wait long keep nobody's turn
    for job_id in list(halted[:PRICES_FOLLOWED_MAX]):
        with log_failures("A job's price could not be followed.", job_id=str(job_id)):
            count += not requotes.follow(job_id)
    return count


def _register_delegations() -> int:
    return delegations.register_due()


def _unready(now: datetime) -> LeaseQuerySet:
    """Leases that were taken up long ago, and whose programs have not started."""
    found = Lease.objects.live().filter(reported_state__in=[AttemptState.ASSIGNED, AttemptState.PREPARING])
    return found.filter(active_at__lt=now - timedelta(seconds=PREPARE_SECONDS_MAX))


def _give_up_growths(now: datetime) -> int:
    """Who waits that long to join a gang, which nobody let join or gave up, is free by nobody's fault."""
    waiting = _unready(now).filter(is_joining=True).values_list("attempt_id", "attempt__job_id").distinct()
    count = 0
    for attempt_id, job_id in list(waiting[:SWEEP_ROWS_MAX]):
        with log_failures("A growth could not be given up.", attempt_id=str(attempt_id)), transaction.atomic():
            lifecycle.lock(job_id)
            count += joining.give_up(Attempt.objects.get(pk=attempt_id))
    return count


def _end_still(now: datetime) -> int:
    """What is metered while it prepares, and stands still there, has its node's fault and costs nothing."""
    running = Lease.objects.live().filter(reported_state=AttemptState.RUNNING, stop_reason="")
    since = (now - timedelta(seconds=PREPARE_SECONDS_MAX)).isoformat()
    still = running.filter(attempt__job__progress__preparing__moved_at__lt=since).select_related("attempt__job")
    count = 0
    for lease in still[:SWEEP_ROWS_MAX]:
        with log_failures("A lease that prepares could not be looked at.", lease_id=str(lease.pk)):
            count += is_still(lease) and reports.lose_still(lease.pk)
    return count


def _end_unjoined() -> int:
    """Who joined a gang and does not come up keeps the others waiting, unpaid."""
    count = 0
    for lease_id in list(resizing.unjoined().values_list("pk", flat=True)[:SWEEP_ROWS_MAX]):
        with log_failures("A lease that joined a gang could not be ended.", lease_id=str(lease_id)):
            count += reports.lose_unjoined(lease_id)
    return count


def _end_unanswered_stops(now: datetime) -> int:
    """A node that beats but does not stop what it was ordered to stop is not waited for."""
    overdue = Lease.objects.live().filter(stop_asked_at__lt=now - timedelta(seconds=STOP_SECONDS_MAX))
    leases = list(overdue.exclude(reported_state__in=ATTEMPT_ENDS)[:SWEEP_ROWS_MAX])
    for lease in leases:
        with log_failures("A lease that does not stop could not be ended.", lease_id=str(lease.pk)):
            reports.lose(lease.pk, Reason(lease.stop_reason), "The node did not stop the program in time.")
    return len(leases)
