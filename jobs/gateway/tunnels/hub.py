"""Every tunnel of this gateway, and by lease the route to each replica: `jobs.gateway.engines.upstream.Replicas`.

What an agent announces counts only where the lease is its node's by the marketplace's table. Of one lease that
is announced twice, the agent that came last has it: the other is one that was restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jobs.gateway.engines.upstream import Announced, UpstreamError
from jobs.gateway.messages import ReplicaRow
from jobs.gateway.tunnels.answers import TunnelAnswer
from jobs.gateway.tunnels.handshakes import Handshakes
from jobs.gateway.tunnels.tunnel import (
    CLOSE_LATE,
    CLOSE_REFUSED,
    CLOSE_REPLACED,
    Receive,
    Send,
    Tunnel,
    TunnelLost,
    TunnelRefused,
)
from marketplace.foundation.addresses.forwarded import FORWARDED_HEADER, TrustedProxies, address_behind
from provider_agent.protocol.tunnel.frames import Header, Open

TUNNELS_MAX: Final = 16_384
HANDSHAKES_MAX: Final = 1_024  # connections that have not proven who they are
HANDSHAKES_PER_ADDRESS_MAX: Final = 64  # of them; behind trusted proxies the address that these saw; of IPv6 a /64
TUNNELS_PER_NODE_MAX: Final = 8
EXPECTING_SECONDS: Final = 3.0  # the table is requested about each second
CAPABILITIES_MAX: Final = 64
NAME_CHARACTERS_MAX: Final = 100  # of an engine, and of a capability
NO_PROXIES: Final = TrustedProxies()
CONTEXT_MAX: Final = 100_000_000

_FORWARDED: Final = FORWARDED_HEADER.lower().encode()

log = logging.getLogger(__name__)


class TunnelHub:
    """One a gateway. `allow` sets who may announce what; `on_change` is called when a replica comes or goes."""

    def __init__(
        self,
        key: Ed25519PrivateKey,
        *,
        urls: Collection[str],
        trusted: TrustedProxies = NO_PROXIES,
        on_change: Callable[[UUID], None] | None = None,
    ) -> None:
        self._key = key
        self._urls = frozenset(url.rstrip("/") for url in urls)
        self._trusted = trusted
        self._has_warned_of_proxy = False
        self.on_change = on_change
        self._rows: dict[UUID, ReplicaRow] = {}
        self._expected: frozenset[str] = frozenset()  # node keys
        self._tunnels: dict[str, list[Tunnel]] = defaultdict(list)  # by node key, the newest last
        self._changed = asyncio.Event()  # of what is expected: set once, then another takes its place
        self._count = 0
        self._handshakes = Handshakes(HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX)
        self._announced: dict[UUID, Announced] = {}
        self._snapshot: Mapping[UUID, Announced] | None = None  # of that, until it changes
        self._upstreams: dict[UUID, TunnelUpstream] = {}

    # --- Replicas

    def announced(self) -> Mapping[UUID, Announced]:
        """By lease id, every replica with a live route to it; the returned mapping does not change any more."""
        if self._snapshot is None:
            self._snapshot = dict(self._announced)
        return self._snapshot

    def upstream(self, lease_id: UUID) -> TunnelUpstream | None:
        """The route to a replica; None when there is none now."""
        return self._upstreams.get(lease_id)

    # --- who may announce what

    def allow(self, rows: Sequence[ReplicaRow]) -> None:
        """The table's replicas, as they are now. A lease that is not among them takes nothing new."""
        before, self._rows = self._rows, {row.lease_id: row for row in rows}
        self._expected = frozenset(row.node_key for row in rows)
        self._changed.set()
        self._changed = asyncio.Event()
        for lease_id in {name for name, row in before.items() if self._key_of(name) != row.node_key}:
            self._refresh(lease_id)
        for lease_id in self._rows.keys() - before.keys():
            self._refresh(lease_id)
        for node_key in [key for key in self._tunnels if key not in self._expected]:
            for tunnel in self._tunnels[node_key]:
                if not tunnel.mux.streams:
                    tunnel.end(CLOSE_REFUSED, "nothing of this node is expected here any more")

    async def is_expected(self, node_key: str) -> bool:
        """For a tunnel: whether its node has a replica here. The table may be a moment behind, or not there yet."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXPECTING_SECONDS):
                while node_key not in self._expected:
                    await self._changed.wait()
        return node_key in self._expected

    def is_ours(self, url: str) -> bool:
        """For a tunnel: whether the agent dialled this gateway, as far as it knows."""
        return url.rstrip("/") in self._urls

    def changed(self, tunnel: Tunnel, lease_id: UUID) -> None:
        """For a tunnel: it announced a lease, or withdrew it."""
        self._refresh(lease_id)

    # --- tunnels

    async def accept(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """An ASGI websocket at frames.PATH, from its beginning to its end."""
        if (await receive())["type"] != "websocket.connect":
            return
        tunnel = Tunnel(self, receive, send)
        if self._count >= TUNNELS_MAX:
            await tunnel.close(CLOSE_REFUSED)
            return
        await send({"type": "websocket.accept"})
        client = self._address_of(scope)
        code = CLOSE_REFUSED
        try:
            await self._handshake(tunnel, client)
            log.info("A tunnel was opened.", extra={"node_key": tunnel.node_key, "client": client})
            await self._keep(tunnel)
        except TimeoutError:
            code = CLOSE_LATE
        except TunnelLost as error:
            code = tunnel.close_code
            log.info("A tunnel was lost: %s", error, extra={"node_key": tunnel.node_key, "client": client})
        except TunnelRefused as error:
            log.info("A tunnel was refused: %s", error, extra={"client": client})
        except Exception as error:  # what a tunnel does wrong ends that tunnel alone
            code = tunnel.close_code
            log.warning("A tunnel was broken off: %s", error, extra={"node_key": tunnel.node_key, "client": client})
        await tunnel.close(code)

    async def _handshake(self, tunnel: Tunnel, address: str) -> None:
        with self._handshakes.begin(address) as handshake:
            async with handshake.run():
                await tunnel.handshake(self._key)

    async def _keep(self, tunnel: Tunnel) -> None:
        mine = self._tunnels[tunnel.node_key]
        too_many = len(mine) + 1 - TUNNELS_PER_NODE_MAX
        for place, older in enumerate(mine):
            if older.boot == tunnel.boot or place < too_many:  # an agent that dials again has given up the one before
                older.end(CLOSE_REPLACED, "the agent has a newer one")
        mine.append(tunnel)
        self._count += 1
        try:
            await tunnel.serve()
        finally:
            self._count -= 1
            mine.remove(tunnel)
            if not mine:
                self._tunnels.pop(tunnel.node_key, None)
            for lease_id in tunnel.ready:
                self._refresh(lease_id)

    # --- below

    def _address_of(self, scope: Mapping[str, Any]) -> str:
        """Who dials, as far as the proxies that are trusted saw it: what the bound of an address counts."""
        remote = (scope.get("client") or ("",))[0]
        headers = [value for name, value in scope.get("headers") or () if name == _FORWARDED]
        if headers and self._trusted == NO_PROXIES and not self._has_warned_of_proxy:
            self._has_warned_of_proxy = True
            log.warning(
                "A proxy at %s passes tunnels on, and SOUK_GATEWAY_TRUSTED_PROXIES names none: all agents behind it"
                " share the handshakes of one address. Set it to the number of proxies, or to their networks.",
                remote,
            )
        return address_behind(remote, b",".join(headers).decode("latin-1"), self._trusted) or remote

    def _key_of(self, lease_id: UUID) -> str:
        row = self._rows.get(lease_id)
        return row.node_key if row is not None else ""

    def _refresh(self, lease_id: UUID) -> None:
        """Find the routes to a lease again, and call `on_change` where that changed something."""
        before = self._announced.get(lease_id)
        tunnels = [
            tunnel
            for tunnel in self._tunnels.get(self._key_of(lease_id), ())
            if lease_id in tunnel.ready and not tunnel.is_lost
        ]
        if tunnels:
            newest = tunnels[-1]
            self._announced[lease_id] = read_ready(lease_id, newest.ready[lease_id])
            self._upstreams[lease_id] = TunnelUpstream(lease_id, newest)
        else:
            self._announced.pop(lease_id, None)
            self._upstreams.pop(lease_id, None)
        if self._announced.get(lease_id) == before:
            return
        self._snapshot = None
        if self.on_change is not None:
            self.on_change(lease_id)


class TunnelUpstream:
    """The route to one replica: `jobs.gateway.engines.upstream.Upstream`."""

    def __init__(self, lease_id: UUID, tunnel: Tunnel) -> None:
        self._lease_id = lease_id
        self._tunnel = tunnel

    async def request(
        self, method: str, path: str, headers: Sequence[Header], body: bytes, *, seconds: float
    ) -> TunnelAnswer:
        """Send it and wait at most `seconds` for the answer's beginning. Raises UpstreamError."""
        if self._tunnel.is_lost:
            raise UpstreamError("there is no route to the replica", is_sent=False)
        sent = [pair for pair in headers if pair[0].lower() != b"content-length"]
        sent.append((b"content-length", b"%d" % len(body)))
        try:
            stream = self._tunnel.mux.open(Open(self._lease_id, method, path, sent))
        except ValueError as error:
            raise UpstreamError(str(error), is_sent=False) from error
        answer = TunnelAnswer(stream)
        stream.write(body)
        stream.finish()
        await answer.until_head(seconds)
        return answer


def read_ready(lease_id: UUID, ready: Mapping[str, Any]) -> Announced:
    """What a runtime reports of itself, as far as it is valid: it may be anybody's program."""
    capabilities, context = ready.get("capabilities"), ready.get("context")
    named = capabilities[:CAPABILITIES_MAX] if isinstance(capabilities, list) else []
    is_number = isinstance(context, int) and not isinstance(context, bool) and 0 < context <= CONTEXT_MAX
    return Announced(
        lease_id=lease_id,
        engine=str(ready.get("engine", ""))[:NAME_CHARACTERS_MAX],
        capabilities=frozenset(name for name in named if isinstance(name, str) and len(name) <= NAME_CHARACTERS_MAX),
        context=context if is_number else None,
        details={name: value for name, value in ready.items() if name not in {"engine", "capabilities", "context"}},
    )
