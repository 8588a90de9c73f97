"""Nodes that update: how a test publishes a version, and lets an agent check in."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.releases import publishing
from tests import stage
from tests.row_states import put_in_state

SHA = "ab" * 32


def node(number: int, *, version: str = "0.1.0", mode: str = "auto", state: str = "online") -> Node:
    made = stage.node(f"node-{number}")
    Node.objects.filter(pk=made.pk).update(agent_version=version, update_mode=mode)
    put_in_state(Node.objects.filter(pk=made.pk), state)
    return Node.objects.get(pk=made.pk)


def publish(version: str, share: float = 0.05) -> AgentRelease:
    return publishing.publish(version=version, wheel=f"gpusouk-{version}-py3-none-any.whl", sha256=SHA, share=share)


def offered_to(version: str) -> set[str]:
    return set(Node.objects.filter(wanted_version=version).values_list("name", flat=True))


def check_in(version: str, *names: str) -> None:
    """These nodes have it, and have had it for an hour."""
    hour_ago = timezone.now() - timedelta(hours=1)
    Node.objects.filter(name__in=names).update(agent_version=version, agent_version_at=hour_ago)
    AgentRelease.objects.filter(version=version).update(stage_at=hour_ago)


def roll_back(version: str, *names: str) -> None:
    Node.objects.filter(name__in=names).update(rolled_back_version=version, rolled_back_reason="it did not check in")


def state(version: str) -> str:
    return AgentRelease.objects.get(version=version).state
