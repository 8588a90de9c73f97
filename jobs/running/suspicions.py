"""A gang's node that falls silent is missed within seconds, where another node of the gang has lost a peer.

    1  suspect         a node reports that its ranks lost a peer: all nodes of the gang are asked for a beat
    2  desired_state   their answers have another version, so held syncs return and agents send the next one at once
    3  find_unheard    who has sent none for ANSWER_SECONDS since then, nor when its next one was due, where another one
                       of the gang has; `lost_nodes.py` ends their leases of this gang

The report names nobody and proves nothing: it only makes silence count sooner, for this gang and once a generation. A
node that beats is never lost by it. Its other leases, and its state, are left to the longer limit of `lost_nodes.py`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from jobs.models import Attempt, Lease
from jobs.running.run_soon import run_soon
from marketplace.foundation import clock
from marketplace.nodes.wake import wake_nodes
from marketplace.nodes.watching import liveness
from provider_agent.protocol import ATTEMPT_ENDS, AttemptState

# A held sync returns at once, the agent sends the next one within 0.1 s, and beats are written every 0.5 s.
ANSWER_SECONDS: Final = 2.5
MARGIN_SECONDS: Final = 0.1  # the task that looks starts so much later
# The second finds those whose last beat came just before they were asked.
LOOKS_AFTER: Final = (ANSWER_SECONDS + MARGIN_SECONDS, liveness.UNASKED_SECONDS_MAX + MARGIN_SECONDS)
LEASES_MAX: Final = 1000  # of one look

log = logging.getLogger(__name__)


def suspect(leases: Iterable[Lease]) -> None:
    """Ask all nodes of the gangs of these leases, of which each has lost a peer, for a beat.

    The rows are as they were read before this report was applied. The first report in a generation counts alone.
    """
    for lease in leases:
        attempt = lease.attempt
        if attempt.suspected_at is not None or lease.reported_state != AttemptState.RUNNING:
            continue
        mine = Attempt.objects.filter(
            pk=attempt.pk, state=AttemptState.RUNNING, generation=attempt.generation, suspected_at=None
        )
        if mine.update(suspected_at=clock.now()):
            log.info("A node lost a peer. lease_id=%s attempt_id=%s", lease.pk, attempt.pk)
            wake_nodes(Lease.objects.live().filter(attempt=attempt).values_list("node_id", flat=True))
            for seconds in LOOKS_AFTER:
                run_soon("jobs.tasks.sweep_silent_nodes", seconds=seconds)


def find_unheard() -> list[UUID]:
    """The leases in suspected gangs whose nodes sent no beat for ANSWER_SECONDS since they were asked for one, and none
    when it was due.

    None of a gang of which no other node sent one, and none where so many nodes are silent that the fault is ours.
    """
    now = clock.now()
    until = now - timedelta(seconds=ANSWER_SECONDS)
    asked = Lease.objects.members().filter(attempt__state=AttemptState.RUNNING, attempt__suspected_at__lte=until)
    asked = asked.exclude(reported_state__in=ATTEMPT_ENDS).select_related("attempt").order_by("attempt__suspected_at")
    gangs: defaultdict[UUID, list[Lease]] = defaultdict(list)
    for lease in asked[:LEASES_MAX]:
        gangs[lease.attempt_id].append(lease)
    since: dict[UUID, datetime] = {}
    for lease in (each for leases in gangs.values() for each in leases):
        if lease.attempt.suspected_at is not None:  # of a node that several gangs asked it is the first question
            since.setdefault(lease.node_id, lease.attempt.suspected_at)
    silent = liveness.find_unheard_since(now, since)
    found = []
    for leases in gangs.values():
        unheard = [lease.pk for lease in leases if lease.node_id in silent]
        if len(unheard) < len(leases):
            found += unheard
    return found
