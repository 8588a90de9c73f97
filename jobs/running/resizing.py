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

from django.db.models import F, Q

from jobs.errors import NoGangPort
from jobs.kinds.registry import kind_of
from jobs.leases import sharing
from jobs.leases.gangs import next_port
from jobs.leases.unpaid import is_unpaid
from jobs.models import Artifact, Attempt, Job, Lease
from jobs.models.querysets import LeaseQuerySet
from jobs.running import generations
from jobs.spec.kinds import base as spec_kinds
from marketplace.foundation import clock
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import ATTEMPT_ENDS, AttemptState

GROW_AGAIN_SECONDS: Final = 600  # from one growth of an attempt to its next, and twice as long for each in vain
DOUBLINGS_MAX: Final = 6
_BAD_ENDS: Final = (AttemptState.FAILED, AttemptState.LOST)
# From the moment a node joins until its program gives its first healthy signal: it fetches the checkpoint meanwhile.
COME_UP_SECONDS: Final = 600
COME_UP_SECONDS_MAX: Final = 3600
FETCH_BYTES_PER_SECOND: Final = 20_000_000


def nodes_of(job: Job) -> tuple[int, int]:
    """(fewest, most) nodes of a job."""
    return spec_kinds.nodes_of(job.spec.get("resources"))


def may_grow(job: Job, attempt: Attempt) -> Artifact | None:
    """The checkpoint from which a live attempt's gang could go on with more nodes; None: it is not to grow now.

    All of it runs, is paid, follows another size, and has saved a checkpoint since its generation began: so no growth
    follows another without progress. Its job is not about to end.
    """
    if not _may_ever_grow(job, attempt) or not _is_whole(job, attempt):
        return None
    resume = Artifact.objects.resumable(job).first()
    is_of_now = resume is not None and (resume.attempt_id, resume.generation) == (attempt.pk, attempt.generation)
    return resume if is_of_now else None


def _may_ever_grow(job: Job, attempt: Attempt) -> bool:
    fewest, most = nodes_of(job)
    if fewest == most or job.is_escrow or job.cancel_requested_at is not None or job.spec.get("command"):
        return False
    if not kind_of(job).outlives_a_lost_node or attempt.generation >= generations.GENERATIONS_MAX:
        return False
    if attempt.artifacts.filter(kind="output").exists():
        return False
    grown = job.attempts.exclude(pk=attempt.pk).filter(grown_at__isnull=False)
    return not grown.filter(state__in=_BAD_ENDS).exists()  # it may have been the growth


def _is_whole(job: Job, attempt: Attempt) -> bool:
    """Whether all of the gang runs, is paid and could go on in another size, and it has less than its most nodes."""
    if attempt.state != AttemptState.RUNNING or attempt.broken_at is not None or attempt.suspected_at is not None:
        return False
    members = list(attempt.leases.members())
    is_whole = all(generations.goes_on(lease) and lease.follows_sizes for lease in members)
    is_whole = is_whole and all(lease.reported_state == AttemptState.RUNNING for lease in members)
    return is_whole and len(members) < nodes_of(job)[1] and not any(map(is_unpaid, members))


def is_rested(attempt: Attempt) -> bool:
    """Whether its last growth, or try of one, is long enough ago for another one: nodes that wait in vain, or do not
    come up, earn nothing meanwhile."""
    never_up = Q(is_joining=True) | Q(joined_generation__isnull=False, running_at=None)
    gone = attempt.leases.filter(never_up).exclude(replaced_at=None)
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
    sharing.share_anew(list(attempt.leases.members()), more=sharing.left_of(lost))
    wake_nodes([*nodes, *(lease.node_id for lease in lost)])
    return True


def unjoined() -> LeaseQuerySet:
    """Leases that joined a gang in its present generation, and whose programs gave no healthy signal in time."""
    since = clock.now() - timedelta(seconds=COME_UP_SECONDS)
    found = Lease.objects.members().filter(attempt__state=AttemptState.RUNNING, attempt__grown_at__lt=since)
    found = found.filter(joined_generation=F("attempt__generation"), running_at=None)
    found = found.exclude(reported_state__in=ATTEMPT_ENDS).select_related("attempt__resume_artifact")
    return Lease.objects.filter(pk__in=[lease.pk for lease in found if _is_late(lease.attempt)])


def _is_late(attempt: Attempt) -> bool:
    size = attempt.resume_artifact.size_bytes if attempt.resume_artifact else 0
    seconds = min(COME_UP_SECONDS + size // FETCH_BYTES_PER_SECOND, COME_UP_SECONDS_MAX)
    return attempt.grown_at is not None and attempt.grown_at < clock.now() - timedelta(seconds=seconds)
