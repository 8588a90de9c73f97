"""Whether a node takes new work: drain and resume are the provider's, quarantine and release the operator's."""

from __future__ import annotations

from django.db import transaction

from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.states import advance
from marketplace.nodes import agent_auth
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState
from provider_agent.protocol import REASON_CHARACTERS_MAX

EVENT_REASON_CHARACTERS_MAX = 64


def drain(node: Node, *, actor: str, reason: str = "") -> Node:
    """The node finishes what it has and takes nothing new, also when it is away just now."""
    return _set_draining(node, True, actor=actor, reason=reason)


def resume(node: Node, *, actor: str, reason: str = "") -> Node:
    """The node takes new work again."""
    return _set_draining(node, False, actor=actor, reason=reason)


def quarantine(node: Node, *, actor: str, reason: str) -> Node:
    """The node gets nothing and must stop what it has, until it is released or retired; it may still sync."""
    advance(node, NodeState.QUARANTINED, actor=actor, reason=reason)
    agent_auth.forget(node.pk)
    return node


def release(node: Node, *, actor: str, reason: str = "") -> Node:
    """The node is trusted again; if it is silent, the next sweep sees that."""
    advance(node, NodeState.ONLINE, only_from=[NodeState.QUARANTINED], actor=actor, reason=reason)
    agent_auth.forget(node.pk)
    return node


def _set_draining(node: Node, is_draining: bool, *, actor: str, reason: str) -> Node:
    """An offline node keeps its state and remembers the request; repeating either is harmless."""
    target = NodeState.DRAINING if is_draining else NodeState.ONLINE
    other = NodeState.ONLINE if is_draining else NodeState.DRAINING
    with transaction.atomic():
        locked = Node.objects.select_for_update().get(pk=node.pk)
        node.state = locked.state
        node.drain_requested_at = (locked.drain_requested_at or clock.now()) if is_draining else None
        if locked.state not in {target, other, NodeState.OFFLINE}:
            raise StateConflict(kind="node", id=str(node.pk), to=target, state=locked.state)
        node.drain_reason = reason[:REASON_CHARACTERS_MAX] if is_draining else ""
        Node.objects.filter(pk=node.pk).update(
            drain_requested_at=node.drain_requested_at, drain_reason=node.drain_reason
        )
        if locked.state == other:
            advance(node, target, only_from=[other], actor=actor, reason=reason[:EVENT_REASON_CHARACTERS_MAX])
    agent_auth.forget(node.pk)
    return node
