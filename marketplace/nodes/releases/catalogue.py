"""Which release of the agent counts: the newest that is not withdrawn."""

from __future__ import annotations

from marketplace.nodes.errors import NoSuchRelease
from marketplace.nodes.models import AgentRelease
from marketplace.nodes.states import ReleaseState


def newest() -> AgentRelease | None:
    """The release that counts; None before there is one."""
    return AgentRelease.objects.exclude(state=ReleaseState.WITHDRAWN).order_by("-published_at").first()


def require_newest() -> AgentRelease:
    """The release that counts; raises NoSuchRelease before there is one."""
    release = newest()
    if release is None:
        raise NoSuchRelease(version="any")
    return release


def installable() -> AgentRelease | None:
    """What a new node installs: the newest release that was rolled out completely, or else the newest of all."""
    complete = AgentRelease.objects.filter(state=ReleaseState.COMPLETE).order_by("-published_at").first()
    return complete or newest()


def lock_all() -> list[AgentRelease]:
    """Every release, locked until the transaction ends. They are few."""
    return list(AgentRelease.objects.select_for_update().order_by("pk"))
