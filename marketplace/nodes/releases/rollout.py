"""A release is sent to a share of the nodes, then to more, then to all; it halts once too many rolled it back.

    1. 5 % of the nodes that are present and update themselves, then 25 %, then all.
    2. The share rises once enough of the nodes it was sent to, and at least half, have settled: they have had the
       release for SOUK_ROLLOUT_SOAK_SECONDS, and none rolled it back.
    3. SOUK_ROLLOUT_ROLLBACKS_MAX rollbacks halt it until an operator decides.

A node that falls silent after the release was sent to it still counts in the share: a release that takes nodes off the
network must not go to others in their place. A rollback reported by a node to which it was not sent does not count.

A keyed hash of release and node decides the order: it differs from release to release, and no provider can enrol nodes
until some of theirs come first.
"""

from __future__ import annotations

import hmac
import math
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from marketplace.foundation import clock
from marketplace.foundation.states import advance
from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.releases.catalogue import lock_all, newest, require_newest
from marketplace.nodes.releases.progress import (
    GONE,
    PRESENT,
    Progress,
    counted_rollbacks,
    progress_of,
    settling_time,
    updating,
)
from marketplace.nodes.releases.publishing import FIRST_SHARE, refuse_share
from marketplace.nodes.states import NodeState, ReleaseState
from provider_agent.protocol import version_key

STAGES: Final = (FIRST_SHARE, 0.25, 1.0)
SETTLED_SHARE_MIN: Final = 0.5  # of the nodes it was sent to, before it is sent to more
NODES_MAX: Final = 100_000
_SENT_STATES: Final = (ReleaseState.ROLLING, ReleaseState.COMPLETE)


def pause(*, actor: str) -> AgentRelease:
    """The release is sent to no other node, and withdrawn from the nodes that have not begun to update."""
    with transaction.atomic():
        lock_all()
        return advance(require_newest(), ReleaseState.PAUSED, reason="paused", actor=actor)


def resume(*, actor: str) -> AgentRelease:
    """The rollout continues at the share it had; rollbacks that were counted so far are forgiven."""
    with transaction.atomic():
        lock_all()
        release = require_newest()
        seen = counted_rollbacks(release).count()
        now = clock.now()
        return advance(release, ReleaseState.ROLLING, reason="resumed", actor=actor, forgiven=seen, stage_at=now)


def set_share(share: float, *, actor: str) -> AgentRelease:
    """From now on the release is sent to this share; no node that has it is rolled back."""
    refuse_share(share)
    with transaction.atomic():
        lock_all()
        release = require_newest()
        if release.state == ReleaseState.COMPLETE:
            why = f"share {share:g}"
            return advance(release, ReleaseState.ROLLING, reason=why, actor=actor, share=share, stage_at=clock.now())
        AgentRelease.objects.filter(pk=release.pk).update(share=share, stage_at=clock.now())
        return require_newest()


def sweep() -> list[UUID]:
    """Send, raise the share, complete or halt; returns the nodes for which something changed. Harmless to repeat."""
    with transaction.atomic():
        lock_all()
        release = newest()
        if release is None or release.state not in _SENT_STATES:
            return _withdraw_from(_not_updated())
        progress = progress_of(release)
        # In a market of fewer nodes than the limit, the limit could never be reached.
        if progress.rolled_back >= min(settings.SOUK_ROLLOUT_ROLLBACKS_MAX, max(progress.nodes, 1)):
            advance(release, ReleaseState.HALTED, reason=f"{progress.rolled_back} nodes rolled it back")
            return _withdraw_from(_not_updated())
        changed = _withdraw_from(Node.objects.exclude(wanted_version="").filter(~Q(wanted_version=release.version)))
        changed += _send(release)
        if release.state == ReleaseState.ROLLING:
            _raise_share(release, progress_of(release))
        return changed


def order_key(version: str, node_id: UUID) -> bytes:
    """A node's place in the order in which this version is sent."""
    return hmac.digest(settings.SECRET_KEY.encode(), f"rollout {version} {node_id}".encode(), "sha256")


def _not_updated() -> QuerySet[Node]:
    """Nodes without their wanted version. Those that have it keep it: they count again when the rollout continues."""
    return Node.objects.exclude(wanted_version="").exclude(agent_version=F("wanted_version"))


def _send(release: AgentRelease) -> list[UUID]:
    """To as many nodes as the share allows, by `order_key`; to those that their providers update by hand last."""
    rows = list(
        Node.objects.exclude(state__in=GONE)
        .exclude(update_mode="none")
        .exclude(rolled_back_version=release.version)
        .values_list("id", "agent_version", "wanted_version", "state", "update_mode")[:NODES_MAX]
    )
    automatic = [row for row in rows if row[4] == "auto"]
    present = [row for row in automatic if row[3] in PRESENT]
    targeted = [row for row in automatic if row[2] == release.version]
    quota = max(math.ceil(release.share * len(present)), 1) - len(targeted)
    lacking = [row[0] for row in present if row[2] != release.version and _fits(release, row[1])]
    chosen = sorted(lacking, key=lambda node_id: order_key(release.version, node_id))[: max(quota, 0)]
    if release.share >= 1:
        last = [row for row in rows if row[4] == "manual" or row[3] == NodeState.PENDING]
        chosen += [row[0] for row in last if row[2] != release.version and _fits(release, row[1])]
    Node.objects.filter(pk__in=chosen).update(wanted_version=release.version)
    return chosen


def _fits(release: AgentRelease, has: str) -> bool:
    return version_key(has) < version_key(release.version) or has == release.rollback_from


def _withdraw_from(nodes: QuerySet[Node]) -> list[UUID]:
    ids = list(nodes.values_list("pk", flat=True)[:NODES_MAX])
    Node.objects.filter(pk__in=ids).update(wanted_version="")
    return ids


def _raise_share(release: AgentRelease, progress: Progress) -> None:
    """The next stage, once enough nodes of this one have settled; after the last one the release is complete."""
    if progress.rolled_back or clock.now() < release.stage_at + settling_time():
        return
    known = updating().exclude(state=NodeState.PENDING)
    chosen = known.filter(wanted_version=release.version).exclude(rolled_back_version=release.version).count()
    needed = max(min(settings.SOUK_ROLLOUT_CHECKED_IN_MIN, chosen), math.ceil(chosen * SETTLED_SHARE_MIN))
    if known.exists() and (not chosen or progress.settled < needed):
        return
    higher = [share for share in STAGES if share > release.share]
    if higher:
        AgentRelease.objects.filter(pk=release.pk).update(share=higher[0], stage_at=clock.now())
    elif not progress.waiting:
        advance(release, ReleaseState.COMPLETE)
