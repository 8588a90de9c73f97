"""Who an agent's request is from: the node whose transport key signed method, path, query, time and body.

The signature commits to the server's time, within a window, so no store of used numbers is needed: a request that is
sent again within the window is one that is harmless to repeat.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from marketplace.foundation import clock
from marketplace.nodes.errors import AgentUnauthenticated, ClockSkew
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState
from provider_agent.protocol import (
    HEADER_NODE,
    HEADER_SIGNATURE,
    HEADER_TIME,
    REQUEST_WINDOW_SECONDS,
    verify_request,
)

CACHE_SECONDS: Final = 10.0  # how long a process may go on believing a node that another process retired
CACHE_ENTRIES_MAX: Final = 20_000
TIME_DIGITS_MAX: Final = 16

_cache: dict[UUID, tuple[float, Node]] = {}
_cache_lock = threading.Lock()


def authenticate_agent(method: str, path_and_query: str, headers: Mapping[str, str], body: bytes) -> Node:
    """The enrolled node that signed this request; raises AgentUnauthenticated or ClockSkew.

    The node is a copy that may be CACHE_SECONDS old. Quarantined nodes are let in (they must learn what to stop);
    retired ones are not. Safe in several threads; touches the database only for a node not seen lately.
    """
    node_id, time_ms, signature = _read_headers(headers)
    node = _find(node_id)
    if node is None:
        raise AgentUnauthenticated
    return _verify(node, signature, method, path_and_query, time_ms, body)


def authenticate_remembered(
    method: str, path_and_query: str, headers: Mapping[str, str], body: bytes, *, seconds: float
) -> Node | None:
    """The same without the database, for an event loop; None for a node that was not looked up for so many seconds.

    Whoever asks for more than CACHE_SECONDS sees to it that `forget` is called for nodes that change.
    """
    node_id, time_ms, signature = _read_headers(headers)
    node = _remembered(node_id, seconds)
    return node and _verify(node, signature, method, path_and_query, time_ms, body)


def forget(node_id: UUID) -> None:
    """Ask the database again for this node; for whoever has just changed what it may do."""
    with _cache_lock:
        _cache.pop(node_id, None)


@dataclass(frozen=True)
class AgentUser:
    """What stands for a user in an agent's request."""

    node: Node
    is_authenticated: bool = True
    is_active: bool = True

    @property
    def pk(self) -> str:
        """`node:<id>`: the actor of what this request does."""
        return f"node:{self.node.pk}"


class AgentAuthentication(BaseAuthentication):
    """`authenticate_agent` for REST views; `request.auth` is the Node."""

    def authenticate(self, request: Request) -> tuple[AgentUser, Node]:
        method = request.method or ""
        node = authenticate_agent(method, request.get_full_path(), request.headers, request.body)
        return AgentUser(node), node


class IsAgent(BasePermission):
    """The request is a node's."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, Node)


class AgentView(APIView):
    """Base of every view that nodes call. Who is signed in is who is asking; people's keys are no use here."""

    authentication_classes = [AgentAuthentication]
    permission_classes = [IsAgent]
    throttle_classes: Any = []  # a node's appends are bounded by its leases, and beats must never be refused


def node_of(request: Request) -> Node:
    """The node that an AgentView's request is from."""
    node = request.auth
    if not isinstance(node, Node):
        raise AgentUnauthenticated
    return node


def _read_headers(headers: Mapping[str, str]) -> tuple[UUID, int, str]:
    """The three headers; their names in any case that HTTP servers hand on."""
    names = (HEADER_NODE, HEADER_TIME, HEADER_SIGNATURE)
    node, time_ms, signature = (headers.get(name) or headers.get(name.lower()) or "" for name in names)
    if not time_ms.isascii() or not time_ms.isdigit() or len(time_ms) > TIME_DIGITS_MAX:
        raise AgentUnauthenticated
    try:
        return UUID(node), int(time_ms), signature
    except ValueError:
        raise AgentUnauthenticated from None


def _verify(  # noqa: PLR0917 - in the order in which they are signed
    node: Node, signature: str, method: str, path_and_query: str, time_ms: int, body: bytes
) -> Node:
    """The node, if the request is its own and of now."""
    if node.state == NodeState.RETIRED:
        raise AgentUnauthenticated
    if not verify_request(node.transport_public_key, signature, method, path_and_query, time_ms, body):
        raise AgentUnauthenticated
    now = clock.now()
    if abs(_ms(now) - time_ms) > REQUEST_WINDOW_SECONDS * 1000:
        raise ClockSkew(server_time=now.isoformat())
    return node


def _find(node_id: UUID) -> Node | None:
    remembered = _remembered(node_id, CACHE_SECONDS)
    if remembered is not None:
        return remembered
    node = Node.objects.filter(pk=node_id).first()
    if node is None:
        return None
    with _cache_lock:
        if len(_cache) >= CACHE_ENTRIES_MAX:
            _cache.clear()
        _cache[node_id] = (time.monotonic(), node)
    return copy.copy(node)  # callers may write to theirs


def _remembered(node_id: UUID, seconds: float) -> Node | None:
    with _cache_lock:
        found = _cache.get(node_id)
    if found is None or time.monotonic() - found[0] > seconds:
        return None
    return copy.copy(found[1])


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
