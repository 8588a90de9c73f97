"""Which nodes should have which release of the agent: a share first, then more, and nobody once too many went back.

A release is told to 5 % of the nodes that are there and update themselves, then to a quarter, then to all. It goes on
when enough of those told, and at least half, have had it for some time and none took it back; it halts by itself at so
many rollbacks. A node that falls silent after it was told keeps its place: a release that takes nodes off the network
must not be handed to others in their stead. What nodes say that nobody told counts for nothing.

Who comes first is drawn by a keyed hash of release and node: not always the same, and nobody can enrol nodes until some
of theirs come first. The newest release that is not withdrawn counts. Every verb holds all releases while it decides.
"""

from __future__ import annotations

import hmac
import math
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce

from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.errors import NoSuchRelease, ReleaseUnfit
from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.states import NodeState, ReleaseState
from provider_agent.protocol import version_key

STAGES: Final = (0.05, 0.25, 1.0)
THERE: Final = (NodeState.ONLINE, NodeState.DRAINING)  # one that is pending may never have been started
SETTLED_SHARE_MIN: Final = 0.5  # of those told, before more are
GONE: Final = (NodeState.RETIRED,)
NODES_MAX: Final = 100_000
_TELLING: Final = (ReleaseState.ROLLING, ReleaseState.COMPLETE)


@dataclass(frozen=True)
class Progress:
    """How far a release has come, in nodes that update themselves."""

    nodes: int
    told: int  # there, and without it yet
    silent: int  # told, and not there any more
    updated: int
    settled: int  # told and updated, there, and for long enough
    rolled_back: int  # but for those forgiven


def publish(*, version: str, wheel: str, sha256: str, share: float = STAGES[0], actor: str = "system") -> AgentRelease:
    """The release exists, and is told to `share` of the nodes from the next sweep on; repeating it changes nothing.

    Raises ReleaseUnfit for a version that is not above every one published before: nodes take none that is not.
    Other bytes of a version that is there replace it for newcomers alone.
    """
    _refuse_share(share)
    try:
        return _publish(version, wheel, sha256, share, actor)
    except IntegrityError:  # another server published it at the same moment
        return _publish(version, wheel, sha256, share, actor)


def _publish(version: str, wheel: str, sha256: str, share: float, actor: str) -> AgentRelease:
    now = clock.now()
    with transaction.atomic():
        releases = _hold_all()
        known = next((each for each in releases if each.version == version), None)
        if known is not None:
            AgentRelease.objects.filter(pk=known.pk).update(wheel=wheel, sha256=sha256)
            return AgentRelease.objects.get(pk=known.pk)
        for older in releases:
            if version_key(older.version) >= version_key(version):
                raise ReleaseUnfit(problem=f"{version} is not above {older.version}, which was published")
            if older.state in {ReleaseState.ROLLING, ReleaseState.PAUSED, ReleaseState.HALTED}:
                advance(older, ReleaseState.WITHDRAWN, reason=f"superseded by {version}", actor=actor)
        is_first = not releases and not _updating().exists()
        state = ReleaseState.COMPLETE if is_first else ReleaseState.ROLLING
        release = AgentRelease.objects.create(
            version=version,
            wheel=wheel,
            sha256=sha256,
            state=state,
            share=1.0 if is_first else share,
            stage_at=now,
            published_at=now,
        )
        record_birth(release, actor=actor)
    return release


def pause(*, actor: str) -> AgentRelease:
    """Nobody else is told, and who was told and has not begun is told no more."""
    with transaction.atomic():
        _hold_all()
        return advance(_newest(), ReleaseState.PAUSED, reason="paused", actor=actor)


def resume(*, actor: str) -> AgentRelease:
    """Goes on where it stood; rollbacks that were counted so far are forgiven."""
    with transaction.atomic():
        _hold_all()
        release = _newest()
        seen = _took_back(release).count()
        now = clock.now()
        return advance(release, ReleaseState.ROLLING, reason="resumed", actor=actor, forgiven=seen, stage_at=now)


def set_share(share: float, *, actor: str) -> AgentRelease:
    """From now on this share is told; nobody who has the release goes back."""
    _refuse_share(share)
    with transaction.atomic():
        _hold_all()
        release = _newest()
        if release.state == ReleaseState.COMPLETE:
            why = f"share {share:g}"
            return advance(release, ReleaseState.ROLLING, reason=why, actor=actor, share=share, stage_at=clock.now())
        AgentRelease.objects.filter(pk=release.pk).update(share=share, stage_at=clock.now())
        return _newest()


def go_back(version: str, *, actor: str) -> AgentRelease:
    """Every release above `version` is withdrawn; the nodes that have the newest go down to it: the manifest says so,
    signed. Those that have one in between keep it, and are told no more of it.
    """
    with transaction.atomic():
        releases = _hold_all()
        bad = _newest()
        target = next((each for each in releases if each.version == version), None)
        if target is None:
            raise NoSuchRelease(version=version)
        if version_key(target.version) >= version_key(bad.version):
            raise ReleaseUnfit(problem=f"{version} is not below {bad.version}, which nodes should leave")
        for above in releases:
            is_above = version_key(above.version) > version_key(version)
            if is_above and above.state != ReleaseState.WITHDRAWN:
                advance(above, ReleaseState.WITHDRAWN, reason=f"gone back to {version}", actor=actor)
        return advance(
            target,
            ReleaseState.ROLLING,
            reason=f"gone back from {bad.version}",
            actor=actor,
            share=1.0,
            stage_at=clock.now(),
            rollback_from=bad.version,
            forgiven=_took_back(target).count(),
        )


def newest() -> AgentRelease | None:
    """The release that counts; None before there is one."""
    return AgentRelease.objects.exclude(state=ReleaseState.WITHDRAWN).order_by("-published_at").first()


def installable() -> AgentRelease | None:
    """What newcomers get: the newest that has gone all the way, not one that is being tried."""
    done = AgentRelease.objects.filter(state=ReleaseState.COMPLETE).order_by("-published_at").first()
    return done or newest()


def sweep() -> list[UUID]:
    """Tell, raise, complete or halt; returns the nodes for which something changed. Harmless to repeat and to race."""
    with transaction.atomic():
        _hold_all()
        release = newest()
        if release is None or release.state not in _TELLING:
            return _withdraw(_told_what_they_lack())
        progress = progress_of(release)
        # In a market of fewer nodes than the limit nobody would be left to reach it.
        if progress.rolled_back >= min(settings.SOUK_ROLLOUT_ROLLBACKS_MAX, max(progress.nodes, 1)):
            advance(release, ReleaseState.HALTED, reason=f"{progress.rolled_back} nodes took it back")
            return _withdraw(_told_what_they_lack())
        changed = _withdraw(Node.objects.exclude(wanted_version="").filter(~Q(wanted_version=release.version)))
        changed += _tell(release)
        if release.state == ReleaseState.ROLLING:
            _raise(release, progress_of(release))
        return changed


def progress_of(release: AgentRelease) -> Progress:
    """Counted now."""
    nodes = _updating()
    was_told = nodes.filter(wanted_version=release.version).exclude(rolled_back_version=release.version)
    lacks = was_told.exclude(agent_version=release.version)
    has = was_told.filter(agent_version=release.version, state__in=THERE)
    since = clock.now() - _soak()
    return Progress(
        nodes=nodes.count(),
        told=lacks.filter(state__in=THERE).count(),
        silent=lacks.exclude(state__in=THERE).count(),
        updated=nodes.filter(agent_version=release.version).count(),
        settled=has.annotate(had_at=Coalesce("agent_version_at", "enrolled_at")).filter(had_at__lte=since).count(),
        rolled_back=max(_took_back(release).count() - release.forgiven, 0),
    )


def status() -> dict[str, Any]:
    """For the operator: the release that counts, how far it is, and who took it back."""
    release = newest()
    if release is None:
        return {"release": None}
    back = _rolled_back(release).values_list("name", "rolled_back_reason")[:20]
    return {
        "release": release.version,
        "state": release.state,
        "reason": release.reason,
        "share": release.share,
        "stage_at": release.stage_at.isoformat(),
        **asdict(progress_of(release)),
        "took_it_back": [{"node": name, "reason": reason} for name, reason in back],
        "installs": (found.version if (found := installable()) else None),
    }


# --- below


def _hold_all() -> list[AgentRelease]:
    """Every release, locked until the transaction ends: one decision about them at a time. They are few."""
    return list(AgentRelease.objects.select_for_update().order_by("pk"))


def _newest() -> AgentRelease:
    release = newest()
    if release is None:
        raise NoSuchRelease(version="any")
    return release


def _updating() -> QuerySet[Node]:
    return Node.objects.filter(update_mode="auto").exclude(state__in=GONE)


def _rolled_back(release: AgentRelease) -> QuerySet[Node]:
    """Who says so, told or not."""
    return Node.objects.exclude(state__in=GONE).filter(rolled_back_version=release.version)


def _took_back(release: AgentRelease) -> QuerySet[Node]:
    """Those of them that were told: else two nodes of a stranger would halt every release on its first day. They stay
    noted as told, so that their providers can try again by hand.
    """
    return _rolled_back(release).filter(wanted_version=release.version)


def _told_what_they_lack() -> QuerySet[Node]:
    """Who has it already stays noted as told: it counts again when the rollout goes on."""
    return Node.objects.exclude(wanted_version="").exclude(agent_version=F("wanted_version"))


def _soak() -> timedelta:
    return timedelta(seconds=settings.SOUK_ROLLOUT_SOAK_SECONDS)


def _tell(release: AgentRelease) -> list[UUID]:
    """As many as the share allows, in the drawn order; who does not update itself is told last and decides."""
    rows = list(
        Node.objects.exclude(state__in=GONE)
        .exclude(update_mode="none")
        .exclude(rolled_back_version=release.version)
        .values_list("id", "agent_version", "wanted_version", "state", "update_mode")[:NODES_MAX]
    )
    automatic = [row for row in rows if row[4] == "auto"]
    there = [row for row in automatic if row[3] in THERE]
    was_told = [row for row in automatic if row[2] == release.version]
    quota = max(math.ceil(release.share * len(there)), 1) - len(was_told)
    lacking = [row[0] for row in there if row[2] != release.version and _fits(release, row[1])]
    chosen = sorted(lacking, key=lambda node_id: place_of(release.version, node_id))[: max(quota, 0)]
    if release.share >= 1:
        last = [row for row in rows if row[4] == "manual" or row[3] == NodeState.PENDING]
        chosen += [row[0] for row in last if row[2] != release.version and _fits(release, row[1])]
    Node.objects.filter(pk__in=chosen).update(wanted_version=release.version)
    return chosen


def _fits(release: AgentRelease, has: str) -> bool:
    return version_key(has) < version_key(release.version) or has == release.rollback_from


def place_of(version: str, node_id: UUID) -> bytes:
    """Where a node stands in the order in which this version is told."""
    return hmac.digest(settings.SECRET_KEY.encode(), f"rollout {version} {node_id}".encode(), "sha256")


def _withdraw(nodes: QuerySet[Node]) -> list[UUID]:
    ids = list(nodes.values_list("pk", flat=True)[:NODES_MAX])
    Node.objects.filter(pk__in=ids).update(wanted_version="")
    return ids


def _raise(release: AgentRelease, progress: Progress) -> None:
    """The next stage, when this one has proven itself; the last one is the end."""
    if progress.rolled_back or clock.now() < release.stage_at + _soak():
        return
    known = _updating().exclude(state=NodeState.PENDING)
    chosen = known.filter(wanted_version=release.version).exclude(rolled_back_version=release.version).count()
    needed = max(min(settings.SOUK_ROLLOUT_CHECKED_IN_MIN, chosen), math.ceil(chosen * SETTLED_SHARE_MIN))
    if known.exists() and (not chosen or progress.settled < needed):
        return
    higher = [share for share in STAGES if share > release.share]
    if higher:
        AgentRelease.objects.filter(pk=release.pk).update(share=higher[0], stage_at=clock.now())
    elif not progress.told:
        advance(release, ReleaseState.COMPLETE)


def _refuse_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ReleaseUnfit(problem=f"a share lies above 0 and is at most 1, not {share:g}")
