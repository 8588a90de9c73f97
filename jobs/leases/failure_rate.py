"""How long the nodes of an attempt run together until one of them fails, as far as this server has seen."""

from __future__ import annotations

from typing import Final

from django.db.models import Sum

from jobs.models import Attempt, Lease

PRIOR_SECONDS: Final = 24 * 3600  # the assumption for a node without a history: one failure a day
PRIOR_FAILURES: Final = 1
MEAN_SECONDS_MIN: Final = 600
MEAN_SECONDS_MAX: Final = 365 * 24 * 3600


def mean_seconds_to_failure(attempt: Attempt) -> int:
    """Seconds, whole, from MEAN_SECONDS_MIN to MEAN_SECONDS_MAX; the rates of its nodes add up.

    By what was billed on each node and the attempts that ended by its fault: the server's own figures, no node's word.
    """
    leases = attempt.leases.filter(replaced_at=None, is_joining=False).select_related("node")
    nodes = {lease.node_id: lease.node for lease in leases}
    worked = Lease.objects.filter(node__in=nodes).values("node_id").annotate(ms=Sum("billable_ms"))
    seconds = {row["node_id"]: (row["ms"] or 0) / 1000 for row in worked}
    rates = [
        (node.failures + PRIOR_FAILURES) / (seconds.get(node_id, 0) + PRIOR_SECONDS) for node_id, node in nodes.items()
    ]
    mean = 1 / sum(rates) if rates else PRIOR_SECONDS
    return round(min(max(mean, MEAN_SECONDS_MIN), MEAN_SECONDS_MAX))
