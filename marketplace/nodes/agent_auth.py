"""Who an agent's request is from: the node whose transport key signed method, path, query, time and body.

The signature commits to the server's time, within a window, so no store of used numbers is needed: a request that is
sent again within the window is one that is harmless to repeat, or that compares its time (offering/newest.py).
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Collection, Mapping
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
    node = _find(claimed_node(headers))
    if node is None:
        raise AgentUnauthenticated
    return verify(node, method, path_and_query, headers, body, received_at=clock.now())


def claimed_node(headers: Mapping[str, str]) -> UUID:
    """The node that a request claims to be from; raises AgentUnauthenticated for headers that cannot be read."""
    return _read_headers(headers)[0]


def verify(
    node: Node,
    method: str,
    path_and_query: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    received_at: datetime,
) -> Node:
    """The node, if the request is its own and was of now when it came; for an event loop: no database.

    A request that waited for us is not late by that: after a restart thousands may.
    """
    _, time_ms, signature = _read_headers(headers)
    if node.state == NodeState.RETIRED:
        raise AgentUnauthenticated
    if not verify_request(node.transport_public_key, signature, method, path_and_query, time_ms, body):
        raise AgentUnauthenticated
    if abs(_ms(received_at) - time_ms) > REQUEST_WINDOW_SECONDS * 1000:
        raise ClockSkew(server_time=received_at.isoformat())
    return node


def remembered(node_id: UUID, seconds: float = CACHE_SECONDS) -> Node | None:
    """A copy of a node that was looked up within so many seconds, without the database.

    A caller with more than CACHE_SECONDS must call `forget` for nodes that change.
    """
    with _cache_lock:
        found = _cache.get(node_id)
    if found is None or time.monotonic() - found[0] > seconds:
        return None
    return copy.copy(found[1])  # callers may write to theirs


def look_up(node_ids: Collection[UUID]) -> dict[UUID, Node]:
    """Those of the nodes that there are, in one query; from now on they are remembered."""
    nodes = Node.objects.in_bulk(list(node_ids))
    with _cache_lock:
        if len(_cache) + len(nodes) > CACHE_ENTRIES_MAX:
            _cache.clear()
        now = time.monotonic()
        _cache.update({node_id: (now, node) for node_id, node in nodes.items()})
    return {node_id: copy.copy(node) for node_id, node in nodes.items()}


def forget(node_id: UUID) -> None:
    """Read this node from the database again; for callers that have just changed what it may do."""
    with _cache_lock:
        _cache.pop(node_id, None)


def forget_all() -> None:
    """Read every node from the database again."""
    with _cache_lock:
        _cache.clear()


@dataclass(frozen=True)
class AgentUser:
    """What takes the place of a user in an agent's request."""

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


def signed_ms_of(request: Request) -> int:
    """When the node signed an AgentView's request, Unix ms by its own clock."""
    return _read_headers(request.headers)[1]


def _read_headers(headers: Mapping[str, str]) -> tuple[UUID, int, str]:
    """The three headers; their names in any case that HTTP servers pass on."""
    names = (HEADER_NODE, HEADER_TIME, HEADER_SIGNATURE)
    node, time_ms, signature = (headers.get(name) or headers.get(name.lower()) or "" for name in names)
    if not time_ms.isascii() or not time_ms.isdigit() or len(time_ms) > TIME_DIGITS_MAX:
        raise AgentUnauthenticated
    try:
        return UUID(node), int(time_ms), signature
    except ValueError:
        raise AgentUnauthenticated from None


def _find(node_id: UUID) -> Node | None:
    return remembered(node_id) or look_up([node_id]).get(node_id)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
