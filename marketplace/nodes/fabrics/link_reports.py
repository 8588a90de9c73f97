"""The reports of both sides of a probed link, and their result: reachable only where each reached the other.

The link gets the lowest of the four bandwidths (each direction, measured at both of its ends) and the round
trip that the connecting node measured. A report is accepted once, in time, from a node of the pair, for a probe that
was demanded.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.states import advance
from marketplace.nodes.errors import ProbeAnswered, ProbeOver
from marketplace.nodes.models import LINK_WHY_MAX, FabricLink, LinkProbe, Node
from marketplace.nodes.states import NodeState, ProbeState
from provider_agent.protocol import LinkReport
from provider_agent.protocol.backoff import QUARTER_JITTER, backoff_seconds

logger = logging.getLogger(__name__)

ANSWER_SECONDS_MAX: Final = 90  # from the demand to the second report; the agents' deadlines are shorter
AGAIN_SECONDS: Final = 24 * 3600
RETRY_SECONDS: Final = 30  # after a failure; doubled with each further one
RETRY_SECONDS_MAX: Final = 6 * 3600
WITHDRAWN_SECONDS: Final = 60
PROBES_ENDED_MAX: Final = 100  # a sweep
NO_FIGURES: Final[dict[str, int | None]] = {"round_trip_us": None, "bandwidth_bytes_per_second": None}


def report(node: Node, probe_id: UUID, sent: LinkReport) -> None:
    """Store one side's report; the second one ends the probe.

    Raises ProbeOver for one that is not awaited from this node, ProbeAnswered for another than the one it sent.
    """
    with transaction.atomic():
        probe = (
            LinkProbe.objects.select_for_update(of=("self",))
            .filter(Q(link__a=node.pk) | Q(link__b=node.pk), pk=probe_id)
            .select_related("link__a", "link__b")
            .first()
        )
        if probe is None:
            raise ProbeOver(state="unknown")
        known = probe.reports.get(str(node.pk))
        if known is not None:
            if known != sent.model_dump():
                raise ProbeAnswered
            return
        if probe.state != ProbeState.DEMANDED or probe.demanded_at < _overdue_before(clock.now()):
            raise ProbeOver(state=probe.state if probe.state != ProbeState.DEMANDED else "overdue")
        probe.reports[str(node.pk)] = sent.model_dump()
        probe.save(update_fields=["reports"])
        Node.objects.filter(pk=node.pk, wanted_probe_id=probe.pk).update(wanted_probe_id=None)
        if len(probe.reports) == 2:
            _conclude(probe)


def expire_overdue() -> list[UUID]:
    """End the probes that were not answered in time, with the reports there are; returns their nodes."""
    overdue = live().filter(demanded_at__lt=_overdue_before(clock.now()))
    return _end_each(overdue, _conclude)


def withdraw_where_busy(busy_node_ids: Collection[UUID]) -> list[UUID]:
    """End the probes of nodes that hold a lease or are not online any more; the link stays as it was."""
    is_wanted = Q(link__a__in=busy_node_ids) | Q(link__b__in=busy_node_ids)
    is_away = ~Q(link__a__state=NodeState.ONLINE) | ~Q(link__b__state=NodeState.ONLINE)
    return _end_each(live().filter(is_wanted | is_away), _withdraw)


def live() -> QuerySet[LinkProbe]:
    """Probes that both ends, or one of them, still have to report."""
    return LinkProbe.objects.filter(state=ProbeState.DEMANDED)


# --- below


def _end_each(probes: QuerySet[LinkProbe], end: Callable[[LinkProbe], None]) -> list[UUID]:
    """Each under its lock, unless it has ended meanwhile."""
    concerned: list[UUID] = []
    for probe_id in list(probes.values_list("pk", flat=True)[:PROBES_ENDED_MAX]):
        try:
            with transaction.atomic():
                locked = LinkProbe.objects.select_for_update(of=("self",)).select_related("link__a", "link__b")
                probe = locked.filter(pk=probe_id, state=ProbeState.DEMANDED).first()
                if probe is not None:
                    end(probe)
                    concerned.extend((probe.link.a_id, probe.link.b_id))
        except StateConflict:
            continue
    return concerned


def _withdraw(probe: LinkProbe) -> None:
    now = clock.now()
    _end(probe, ProbeState.WITHDRAWN, now)
    again = now + timedelta(seconds=WITHDRAWN_SECONDS)
    FabricLink.objects.filter(pk=probe.link_id).update(next_probe_at=again)


def _conclude(probe: LinkProbe) -> None:
    """Write to the link what both sides, or the one that answered, reported."""
    now, link = clock.now(), probe.link
    listener = link.a if probe.listener_id == link.a_id else link.b
    connector = link.other(listener.pk)
    reports = {node.pk: _report_of(probe, node) for node in (listener, connector)}
    if not any(reports.values()):
        # No report says anything about the network: what was measured before stays until it is too old.
        why = "neither node answered; update their agents if this stays"
        fields: dict[str, Any] = {} if link.measured_at else {"why": why}
        _note_failure(link, now, **fields)
        _end(probe, ProbeState.FAILED, now, reason="unanswered")
        return
    problems = _problems(listener, connector, reports)
    figures = _figures(reports[listener.pk], reports[connector.pk])
    problems += _conflicts(listener, connector)
    if not problems and figures is None:
        problems.append("both reached each other, but sent no figures")
    if problems:
        why = "; ".join(problems)[:LINK_WHY_MAX]
        _note_failure(link, now, is_reachable=False, measured_at=now, why=why, **NO_FIGURES)
        _end(probe, ProbeState.FAILED, now, reason="unreachable")
        logger.warning("Two nodes of a fabric do not reach each other: %s", why, extra={"link_id": str(link.pk)})
        return
    seconds = AGAIN_SECONDS * random.uniform(*QUARTER_JITTER)
    FabricLink.objects.filter(pk=link.pk).update(
        is_reachable=True,
        measured_at=now,
        why="",
        failures_in_row=0,
        next_probe_at=now + timedelta(seconds=seconds),
        **(figures or NO_FIGURES),
    )
    _end(probe, ProbeState.MEASURED, now)


def _report_of(probe: LinkProbe, node: Node) -> LinkReport | None:
    sent = probe.reports.get(str(node.pk))
    return LinkReport(**sent) if sent else None


def _problems(listener: Node, connector: Node, reports: dict[UUID, LinkReport | None]) -> list[str]:
    """Of each direction that is not confirmed by both nodes: what they reported."""
    problems = []
    for source, target in ((connector, listener), (listener, connector)):
        mine, theirs = reports[source.pk], reports[target.pk]
        direction = f"{source.name} to {target.name}"
        if mine is None or theirs is None:
            problems.append(f"{direction}: {(source if mine is None else target).name} did not answer")
        elif not mine.dialled:
            problems.append(f"{direction}: {mine.dial_why or 'not reached'}")
        elif not theirs.was_dialled:
            problems.append(
                f"{direction}: {source.name} reports a connection, {target.name}: {theirs.listen_why or 'none came'}"
            )
    return problems


def _conflicts(listener: Node, connector: Node) -> list[str]:
    """Why containers of both cannot be of one gang, however well their nodes reach each other."""
    if "process" in {listener.executor, connector.executor}:
        return []
    both = f"{listener.name} and {connector.name} have"
    conflicts = []
    if listener.fabric_key and listener.fabric_key == connector.fabric_key:
        conflicts.append(
            f"{both} the same gang key: one is a copy of the other; enrol it again with a data folder of its own"
        )
    if ip_address(listener.fabric_address) == ip_address(connector.fabric_address):
        conflicts.append(f"{both} the address {listener.fabric_address}: a gang needs one for each")
    return conflicts


def _figures(listener: LinkReport | None, connector: LinkReport | None) -> dict[str, int | None] | None:
    """The connecting node's round trip, and the lowest bandwidth of both directions at both nodes, if all were sent."""
    if listener is None or connector is None or connector.round_trip_us is None:
        return None
    speeds = [
        *(listener.sent_bytes_per_second, listener.received_bytes_per_second),
        *(connector.sent_bytes_per_second, connector.received_bytes_per_second),
    ]
    known = [speed for speed in speeds if speed]
    if len(known) < len(speeds):
        return None
    return {"round_trip_us": connector.round_trip_us, "bandwidth_bytes_per_second": min(known)}


def _note_failure(link: FabricLink, now: datetime, **fields: Any) -> None:
    """Try again, later each time."""
    failures = link.failures_in_row + 1
    seconds = backoff_seconds(failures, first=RETRY_SECONDS, most=RETRY_SECONDS_MAX, jitter=QUARTER_JITTER)
    FabricLink.objects.filter(pk=link.pk).update(
        failures_in_row=failures, next_probe_at=now + timedelta(seconds=seconds), **fields
    )


def _end(probe: LinkProbe, state: ProbeState, now: datetime, *, reason: str = "") -> None:
    """No node has to measure it any more, and its secret is deleted."""
    advance(probe, state, only_from=[ProbeState.DEMANDED], reason=reason, ended_at=now, secret="")
    pair = [probe.link.a_id, probe.link.b_id]
    Node.objects.filter(pk__in=pair, wanted_probe_id=probe.pk).update(wanted_probe_id=None)


def _overdue_before(now: datetime) -> datetime:
    return now - timedelta(seconds=ANSWER_SECONDS_MAX)
