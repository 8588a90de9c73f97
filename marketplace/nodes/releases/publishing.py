"""A release is published, or the nodes are rolled back from the newest one to an older one."""

from __future__ import annotations

from typing import Final

from django.db import IntegrityError, transaction

from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.errors import NoSuchRelease, ReleaseUnfit
from marketplace.nodes.models import AgentRelease
from marketplace.nodes.releases.catalogue import lock_all, require_newest
from marketplace.nodes.releases.progress import counted_rollbacks, updating
from marketplace.nodes.states import ReleaseState
from provider_agent.protocol import version_key

FIRST_SHARE: Final = 0.05  # of the nodes that update themselves
_UNFINISHED: Final = (ReleaseState.ROLLING, ReleaseState.PAUSED, ReleaseState.HALTED)


def publish(
    *, version: str, wheel: str, sha256: str, share: float = FIRST_SHARE, actor: str = "system"
) -> AgentRelease:
    """The release exists, and the next sweep sends it to `share` of the nodes; repeating this changes nothing.

    Raises ReleaseUnfit for a version that is not above every one published before: nodes accept none that is not.
    Other bytes of a version that is there replace it for new nodes only.
    """
    refuse_share(share)
    try:
        return _publish(version, wheel, sha256, share, actor)
    except IntegrityError:  # another server published it at the same moment
        return _publish(version, wheel, sha256, share, actor)


def roll_back_to(version: str, *, actor: str) -> AgentRelease:
    """Every release above `version` is withdrawn, and nodes that have the newest one are rolled back to `version`.

    Its signed manifest allows them to. Nodes with a release between the two keep it, and are sent it no more.
    """
    with transaction.atomic():
        releases = lock_all()
        bad = require_newest()
        target = next((each for each in releases if each.version == version), None)
        if target is None:
            raise NoSuchRelease(version=version)
        if version_key(target.version) >= version_key(bad.version):
            raise ReleaseUnfit(problem=f"{version} is not below {bad.version}, which nodes should leave")
        for above in releases:
            is_above = version_key(above.version) > version_key(version)
            if is_above and above.state != ReleaseState.WITHDRAWN:
                advance(above, ReleaseState.WITHDRAWN, reason=f"rolled back to {version}", actor=actor)
        return advance(
            target,
            ReleaseState.ROLLING,
            reason=f"rolled back from {bad.version}",
            actor=actor,
            share=1.0,
            stage_at=clock.now(),
            rollback_from=bad.version,
            forgiven=counted_rollbacks(target).count(),
        )


def refuse_share(share: float) -> None:
    """Raises ReleaseUnfit for a share that is none of the nodes, or more than all."""
    if not 0 < share <= 1:
        raise ReleaseUnfit(problem=f"a share lies above 0 and is at most 1, not {share:g}")


def _publish(version: str, wheel: str, sha256: str, share: float, actor: str) -> AgentRelease:
    now = clock.now()
    with transaction.atomic():
        releases = lock_all()
        known = next((each for each in releases if each.version == version), None)
        if known is not None:
            AgentRelease.objects.filter(pk=known.pk).update(wheel=wheel, sha256=sha256)
            return AgentRelease.objects.get(pk=known.pk)
        for older in releases:
            if version_key(older.version) >= version_key(version):
                raise ReleaseUnfit(problem=f"{version} is not above {older.version}, which was published")
            if older.state in _UNFINISHED:
                advance(older, ReleaseState.WITHDRAWN, reason=f"superseded by {version}", actor=actor)
        is_first = not releases and not updating().exists()
        release = AgentRelease.objects.create(
            version=version,
            wheel=wheel,
            sha256=sha256,
            share=1.0 if is_first else share,
            stage_at=now,
            published_at=now,
        )
        record_birth(release, actor=actor)
        if is_first:  # there is no node to send it to
            advance(release, ReleaseState.COMPLETE, actor=actor)
    return release
