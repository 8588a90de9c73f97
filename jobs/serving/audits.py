"""What follows from computing answers again: who was wrong, by how many words, and what it costs them.

    a lease is wrong     where two other nodes, not both of one competing provider, computed another answer;
                         or a gateway saw SEEN_MAX times itself that it does not do what it should;
                         or it was OUTVOTED_MAX times the only one to call an answer wrong
    what it costs        the lease ends with `replica_wrong`: by its provider's fault, and nothing of it is paid. It
                         counts as a failed device check in the node's reputation, and a node with
                         QUARANTINE_REPLICAS wrong replicas within WINDOW is quarantined

One mismatch that no third node could check proves nothing about either: it is kept and shown, and has no
consequence. So an endpoint whose provider may lie needs three nodes, of three providers to be safe from two that agree.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from jobs.gateway.messages import AuditRow
from jobs.models import Audit, Lease, WrongReplica
from jobs.running import reports
from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.device_checks import demands
from marketplace.nodes.models import Node
from marketplace.nodes.offering import availability
from provider_agent.protocol import Reason

SEEN_MAX: Final = 3
OUTVOTED_MAX: Final = 3
QUARANTINE_REPLICAS: Final = 2
WINDOW: Final = timedelta(days=30)
KEPT_DAYS: Final = 30  # of matches; what was no match is kept as long as its lease
FORGOTTEN_MAX: Final = 5000  # rows at a time
CLOCK_SECONDS_MAX: Final = 86_400  # a gateway's clock beyond that is not believed

logger = logging.getLogger(__name__)

_MISMATCH, _MATCH = Audit.Verdict.MISMATCH, Audit.Verdict.MATCH


def ingest_audits(rows: Sequence[AuditRow]) -> list[UUID]:
    """Keep these verdicts and act on them; harmless to repeat. The leases that were ended by it."""
    named = {row.lease_id for row in rows} | {row.checked_by for row in rows}
    endpoint_of = dict(
        Lease.objects.filter(pk__in=named, attempt__replica__isnull=False).values_list(
            "pk", "attempt__replica__endpoint_id"
        )
    )
    known = [row for row in rows if endpoint_of.get(row.lease_id) == endpoint_of.get(row.checked_by) == row.endpoint_id]
    Audit.objects.bulk_create([_audit(row) for row in known], ignore_conflicts=True)
    suspects = {row.lease_id for row in known} | {row.checked_by for row in known}
    ended = []
    for lease_id in sorted(suspects - set(WrongReplica.objects.filter(pk__in=suspects).values_list("pk", flat=True))):
        with log_failures("The audits of a lease could not be acted on.", lease_id=str(lease_id)):
            because, proof = find_wrong(lease_id)
            if because:
                end_wrong(lease_id, because, proof)
                ended.append(lease_id)
    return ended


def find_wrong(lease_id: UUID) -> tuple[str, list[Audit]]:
    """Why this lease is wrong, for people, and the audits that prove it; empty where none does."""
    reported = _of(Audit.objects.filter(lease_id=lease_id, verdict=_MISMATCH))
    seen = [audit for audit in reported if audit.checked_by_id == lease_id]
    if len(seen) >= SEEN_MAX:
        return f"A gateway saw {len(seen)} times: {seen[0].detail}.", seen
    by_request: dict[UUID, list[Audit]] = {}
    for audit in reported:
        if audit.checked_by.node_id != audit.lease.node_id:
            by_request.setdefault(audit.request_id, []).append(audit)
    for audits in by_request.values():
        if _is_proof(audits):
            return f"{len(audits)} other nodes computed another answer: {audits[0].detail}.", audits
    outvoted = _outvoted(lease_id)
    if len(outvoted) >= OUTVOTED_MAX:
        return f"It called {len(outvoted)} answers wrong that another node computed to be right.", outvoted
    return "", []


def end_wrong(lease_id: UUID, because: str, proof: Collection[Audit]) -> None:
    """End the lease by its provider's fault, and remember it of the node."""
    lease = Lease.objects.select_related("node").get(pk=lease_id)
    with transaction.atomic():
        wrong, is_new = WrongReplica.objects.get_or_create(
            lease=lease, defaults={"node": lease.node, "because": because[:500]}
        )
        if not is_new:
            return
        wrong.audits.set(proof)
        Node.objects.filter(pk=lease.node_id).update(
            checks_failed=F("checks_failed") + 1,
            checks_failed_in_row=F("checks_failed_in_row") + 1,
            next_check_at=clock.now() + timedelta(seconds=demands.RETEST_SECONDS),
        )
        reports.lose(lease_id, Reason.REPLICA_WRONG, because)
    logger.warning("A replica was wrong.", extra={"lease_id": str(lease_id), "node_id": str(lease.node_id)})
    count = WrongReplica.objects.filter(node=lease.node_id, created_at__gt=clock.now() - WINDOW).count()
    if count >= QUARANTINE_REPLICAS:
        _quarantine(lease.node_id)


def forget_old() -> int:
    """Remove matches that are not needed any more."""
    old = Audit.objects.filter(verdict=_MATCH, created_at__lt=clock.now() - timedelta(days=KEPT_DAYS))
    unused = old.exclude(pk__in=WrongReplica.audits.through.objects.values("audit_id"))
    count, _ = Audit.objects.filter(pk__in=list(unused.values_list("pk", flat=True)[:FORGOTTEN_MAX])).delete()
    return count


# --- below


def _audit(row: AuditRow) -> Audit:
    now = clock.now()
    at = datetime.fromtimestamp(min(max(row.at_ms, 0), 2**42) / 1000, UTC)
    return Audit(
        request_id=row.request_id,
        endpoint_id=row.endpoint_id,
        lease_id=row.lease_id,
        checked_by_id=row.checked_by,
        verdict=row.verdict,
        detail=row.detail[:2000],
        at=at if abs((now - at).total_seconds()) < CLOCK_SECONDS_MAX else now,
    )


def _of(audits: QuerySet[Audit]) -> list[Audit]:
    return list(audits.select_related("lease__node", "checked_by__node").order_by("created_at", "id"))


def _is_proof(audits: Sequence[Audit]) -> bool:
    """Two nodes, and not two of one competitor, who could agree to lie."""
    accused = audits[0].lease.node
    nodes = {audit.checked_by.node_id for audit in audits}
    providers = {audit.checked_by.node.provider_id for audit in audits}
    return len(nodes) > 1 and (len(providers) > 1 or accused.provider_id in providers)


def _outvoted(lease_id: UUID) -> list[Audit]:
    """Answers that this lease called wrong, and another node right."""
    accusations = Audit.objects.filter(checked_by_id=lease_id, verdict=_MISMATCH).exclude(lease_id=lease_id)
    accused = _of(accusations)
    right = set(
        Audit.objects.filter(request_id__in=[audit.request_id for audit in accused], verdict=_MATCH)
        .exclude(checked_by_id=lease_id)
        .values_list("request_id", "lease_id")
    )
    return [audit for audit in accused if (audit.request_id, audit.lease_id) in right]


def _quarantine(node_id: UUID) -> None:
    try:
        availability.quarantine(Node.objects.get(pk=node_id), actor="system", reason="replica_wrong")
    except StateConflict:
        logger.info("A node was quarantined or retired already.", extra={"node_id": str(node_id)})
