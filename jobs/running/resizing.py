"""Gangs of another size: more nodes join one that trains, or it goes on with fewer when nodes are lost.

    may_grow        whether the gang of a training could go on with more nodes now
    is_ready        whether all that wait to join it have loaded their programs
    join            its next generation, with them
    may_shrink      whether it could go on without its lost nodes
    shrink          its next generation, without them
    unjoined        who has joined and does not come up: nobody waits for it for ever

Only where its job file has a range of nodes: within that. Where no other node takes a lost one's place, the gang goes
on with the rest; at once, where who is lost had only just joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.db.models import F

from jobs.errors import NoGangPort
from jobs.kinds.registry import kind_of
from jobs.leases import sharing
from jobs.leases.gangs import next_port
from jobs.models import Artifact, Attempt, Job, Lease
from jobs.models.querysets import LeaseQuerySet
from jobs.running import generations
from jobs.spec.units import parse_nodes
from marketplace.foundation import clock
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import ATTEMPT_ENDS, AttemptState

GROW_AGAIN_SECONDS: Final = 600  # from one growth of an attempt to its next, and twice as long for each in vain
DOUBLINGS_MAX: Final = 6
COME_UP_SECONDS: Final = 600  # from the moment a node joins until its program gives its first healthy signal


def nodes_of(job: Job) -> tuple[int, int]:
    """(fewest, most) nodes of a job."""
    return parse_nodes(job.spec.get("resources", {}).get("nodes", 1))


def may_grow(job: Job, attempt: Attempt) -> Artifact | None:
    """The checkpoint from which a live attempt's gang could go on with more nodes; None: it is not to grow now.

    All of it runs, is paid, follows another size, and has saved a checkpoint since its generation began: so no growth
    follows another without progress. Its job is not about to end.
    """
    fewest, most = nodes_of(job)
    if fewest == most or job.is_escrow or job.cancel_requested_at is not None or job.spec.get("command"):
        return None
    if not kind_of(job).outlives_a_lost_node or attempt.generation >= generations.GENERATIONS_MAX:
        return None
    if attempt.state != AttemptState.RUNNING or attempt.broken_at is not None or attempt.suspected_at is not None:
        return None
    members = list(attempt.leases.members())
    is_whole = all(generations.goes_on(lease) and lease.follows_sizes for lease in members)
    is_whole = is_whole and all(lease.reported_state == AttemptState.RUNNING for lease in members)
    if not is_whole or len(members) >= most or any(map(generations.is_unpaid, members)):
        return None
    if attempt.artifacts.filter(kind="output").exists():
        return None
    resume = Artifact.objects.resumable(job).first()
    is_of_now = resume is not None and (resume.attempt_id, resume.generation) == (attempt.pk, attempt.generation)
    return resume if is_of_now else None


def is_rested(attempt: Attempt) -> bool:
    """Whether its last growth, or try of one, is long enough ago for another one: nodes that wait in vain earn nothing
    meanwhile."""
    gone = attempt.leases.filter(is_joining=True).exclude(replaced_at=None)
    in_vain = {at for at in gone.values_list("replaced_at", flat=True) if at is not None}
    seconds = GROW_AGAIN_SECONDS * 2 ** min(len(in_vain), DOUBLINGS_MAX)
    tried = [*in_vain, *([attempt.grown_at] if attempt.grown_at else [])]
    return not tried or max(tried) < clock.now() - timedelta(seconds=seconds)


def is_ready(leases: Sequence[Lease]) -> bool:
    """Whether the programs of these leases, which wait to join a gang, have started and are there to go on."""
    return bool(leases) and all(
        lease.reported_state == AttemptState.PREPARING
        and not lease.stop_reason
        and lease.follows_generations
        and lease.follows_sizes
        for lease in leases
    )


def join(job: Job, attempt: Attempt, *, once_usd_micros: int) -> None:
    """Let a locked job's attempt go on with the leases that wait to join it; raises NoGangPort.

    `once_usd_micros`: what the growth costs beside the training, as it was reckoned.
    """
    leases = list(attempt.leases.live().order_by("node_rank"))
    port = next_port(attempt, [lease.node_id for lease in leases])
    generations.begin(job, attempt, [], master_port=port, size=len(leases))
    attempt.grown_at = clock.now()
    attempt.growth_usd_micros += once_usd_micros
    attempt.save(update_fields=["grown_at", "growth_usd_micros"])
    sharing.share_anew(list(attempt.leases.members()))
    wake_nodes([lease.node_id for lease in leases])


def may_shrink(job: Job, attempt: Attempt) -> bool:
    """Whether a locked job's live attempt that lost nodes could go on with the rest.

    The first node has to be among the rest: its stream of events is the training's.
    """
    fewest, most = nodes_of(job)
    if fewest == most or not generations.may_go_on(job, attempt):
        return False
    rest = list(attempt.leases.members().exclude(reported_state__in=ATTEMPT_ENDS))
    if len(rest) < fewest or not all(lease.follows_sizes for lease in rest):
        return False
    if min(lease.node_rank for lease in rest) != 0:
        return False
    return generations.has_progress(job, attempt)


def shrink(job: Job, attempt: Attempt, lost: Sequence[Lease]) -> bool:
    """Let a locked job's attempt go on without its lost leases, of which nothing more is to come; what they have not
    spent is the rest's. False where the rest cannot meet."""
    rest = list(attempt.leases.members().exclude(pk__in=[lease.pk for lease in lost]).order_by("node_rank"))
    nodes = [lease.node_id for lease in rest]
    try:
        port = next_port(attempt, nodes)
    except NoGangPort:
        return False
    generations.begin(job, attempt, lost, master_port=port, size=len(rest))
    left = sharing.NOTHING
    for lease in lost:
        lease.refresh_from_db()
        left = left.plus(
            sharing.Amount(
                lease.cap_usd_micros - (lease.charge_usd_micros or 0), int(lease.cap_units - (lease.charge_units or 0))
            )
        )
    sharing.share_anew(list(attempt.leases.members()), more=left)
    wake_nodes([*nodes, *(lease.node_id for lease in lost)])
    return True


def unjoined() -> LeaseQuerySet:
    """Leases that joined a gang in its present generation, and whose programs gave no healthy signal in time."""
    since = clock.now() - timedelta(seconds=COME_UP_SECONDS)
    found = Lease.objects.members().filter(attempt__state=AttemptState.RUNNING, attempt__grown_at__lt=since)
    found = found.filter(joined_generation=F("attempt__generation"), running_at=None)
    return found.exclude(reported_state__in=ATTEMPT_ENDS)
