"""How far a release has come, counted in the nodes that update themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from marketplace.foundation import clock
from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.releases.catalogue import installable, newest
from marketplace.nodes.states import NodeState

PRESENT: Final = (NodeState.ONLINE, NodeState.DRAINING)  # a pending node may never have been started
GONE: Final = (NodeState.RETIRED,)
ROLLBACKS_SHOWN_MAX: Final = 20
# Old names of what `status` answers, until the next version: old -> new.
DEPRECATED_KEYS: Final = {"told": "waiting", "took_it_back": "rollbacks", "installs": "installable"}


@dataclass(frozen=True)
class Progress:
    """How far a release has come, in nodes that update themselves."""

    nodes: int
    waiting: int  # it was sent to them, they are present, and do not have it yet
    silent: int  # it was sent to them, they do not have it, and are not present any more
    updated: int
    settled: int  # it was sent to them, they have had it for long enough, and are present
    rolled_back: int  # except those that an operator has forgiven


def progress_of(release: AgentRelease) -> Progress:
    """Counted now."""
    nodes = updating()
    targeted = nodes.filter(wanted_version=release.version).exclude(rolled_back_version=release.version)
    lacking = targeted.exclude(agent_version=release.version)
    having = targeted.filter(agent_version=release.version, state__in=PRESENT)
    since = clock.now() - settling_time()
    return Progress(
        nodes=nodes.count(),
        waiting=lacking.filter(state__in=PRESENT).count(),
        silent=lacking.exclude(state__in=PRESENT).count(),
        updated=nodes.filter(agent_version=release.version).count(),
        settled=having.annotate(had_at=Coalesce("agent_version_at", "enrolled_at")).filter(had_at__lte=since).count(),
        rolled_back=max(counted_rollbacks(release).count() - release.forgiven, 0),
    )


def status() -> dict[str, Any]:
    """For the operator: the release that counts, how far it is, and which nodes rolled it back."""
    release = newest()
    if release is None:
        return {"release": None}
    rollbacks = reported_rollbacks(release).values_list("name", "rolled_back_reason")[:ROLLBACKS_SHOWN_MAX]
    found = {
        "release": release.version,
        "state": release.state,
        "reason": release.reason,
        "share": release.share,
        "stage_at": release.stage_at.isoformat(),
        **asdict(progress_of(release)),
        "rollbacks": [{"node": name, "reason": reason} for name, reason in rollbacks],
        "installable": (complete.version if (complete := installable()) else None),
    }
    return found | {old: found[new] for old, new in DEPRECATED_KEYS.items()} | {"deprecated": DEPRECATED_KEYS}


def updating() -> QuerySet[Node]:
    """Nodes that update themselves."""
    return Node.objects.filter(update_mode="auto").exclude(state__in=GONE)


def reported_rollbacks(release: AgentRelease) -> QuerySet[Node]:
    """Nodes that report to have rolled the release back, whether or not it was sent to them."""
    return Node.objects.exclude(state__in=GONE).filter(rolled_back_version=release.version)


def counted_rollbacks(release: AgentRelease) -> QuerySet[Node]:
    """Those to which it was sent: otherwise two nodes of a stranger could halt every release on its first day.

    They keep it as their wanted version, so that their providers can try again by hand.
    """
    return reported_rollbacks(release).filter(wanted_version=release.version)


def settling_time() -> timedelta:
    """How long a node must have had a release before it counts as settled."""
    return timedelta(seconds=settings.SOUK_ROLLOUT_SOAK_SECONDS)
