"""Which lease is announced to which gateways, and the requests that come for them. One connection a gateway.

    announce          a replica is ready: requests may come
    withdraw          no new requests; those that are open go on
    change_gateways   other gateways reach it from now on
    start, close      the loops, with every connection

A lease is reached by its own socket alone: a gateway that asks for another lease, or for a path that is not an engine's
own, is refused here, whatever it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import secrets
import ssl
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.loop_supervisor import LoopStatus, keep_running
from provider_agent.protocol.serving import GatewayPlace, ServePlace
from provider_agent.protocol.tunnel.frames import (
    LEASES_PER_TUNNEL_MAX,
    STREAMS_PER_TUNNEL_MAX,
    Code,
    Open,
    pack_announce,
)
from provider_agent.protocol.tunnel.streams import Stream
from provider_agent.system.trust import tls_context
from provider_agent.tunnel.counting import Counts
from provider_agent.tunnel.engine import Engine
from provider_agent.tunnel.exchange import Exchange, Refusal
from provider_agent.tunnel.gateway_connection import GatewayConnection

EXCHANGES_PER_LEASE_MAX: Final = STREAMS_PER_TUNNEL_MAX  # one lease may be all that a tunnel is for
FILES_SPARE: Final = 1024  # open files that are no connection to an engine
SWEEP_SECONDS: Final = 1.0
LEASES_KEPT_MAX: Final = 1024  # whose counts can be asked for after they were withdrawn

log = logging.getLogger(__name__)


@dataclass
class Served:
    """One lease."""

    place: ServePlace
    ready: dict[str, Any]
    engine: Engine
    counts: Counts = field(default_factory=Counts)
    exchanges: set[Exchange] = field(default_factory=set)
    is_withdrawn: bool = False


class GatewayRoute:
    """One gateway: the connection to it, and the leases that are announced to it."""

    def __init__(self, tunnels: Tunnels, place: GatewayPlace) -> None:
        self._tunnels = tunnels
        self.place = place
        self.announced: set[UUID] = set()
        self.connection = tunnels.make_connection(place, self)
        self.task = asyncio.create_task(self.connection.keep())

    def leases(self) -> dict[UUID, dict[str, Any]]:
        """For the connection: what is announced on a new connection."""
        return {lease_id: self._tunnels.ready_of(lease_id) for lease_id in self.announced}

    def opened(self, stream: Stream, request: Open) -> None:
        """For the connection: a gateway may ask only for what is announced to it."""
        if request.lease_id in self.announced:
            self._tunnels.serve(stream, request)
        else:
            stream.reset(Code.REFUSED, "this replica is not announced to this gateway")

    def announce(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        """From now on the gateway may ask for it."""
        self.announced.add(lease_id)
        self.connection.announce(lease_id, ready)

    def withdraw(self, lease_id: UUID) -> None:
        """It may not."""
        if lease_id in self.announced:
            self.announced.discard(lease_id)
            self.connection.withdraw(lease_id)


class Tunnels:
    """All tunnels of one agent. To be used within its event loop."""

    def __init__(self, key: Ed25519PrivateKey, *, tls: Callable[[], ssl.SSLContext] = tls_context) -> None:
        self._key = key
        self._tls = tls
        self._boot = secrets.token_hex(16)
        self._served: dict[UUID, Served] = {}
        self._routes: dict[tuple[str, str], GatewayRoute] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch over what is served; harmless to repeat."""
        if self._sweeper is None:
            allow_files(EXCHANGES_PER_LEASE_MAX + FILES_SPARE)
            self._sweeper = asyncio.create_task(keep_running(LoopStatus("tunnel sweep"), self._sweep))

    async def close(self) -> None:
        """Let go of every gateway and every engine."""
        tasks = [route.task for route in self._routes.values()] + ([self._sweeper] if self._sweeper else [])
        self._routes, self._sweeper = {}, None
        for task in tasks:
            task.cancel()
        for served in self._served.values():
            _let_go(served)
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def announce(self, lease_id: UUID, place: ServePlace, socket_path: Path, ready: dict[str, Any]) -> None:
        """The replica of a lease is ready, and its engine answers at `socket_path`; harmless to repeat.

        Raises ValueError where the event is no JSON object or too long, or there are too many leases.
        """
        pack_announce(lease_id, ready)
        if self._live_count() >= LEASES_PER_TUNNEL_MAX and self._is_new(lease_id):
            raise ValueError(f"{LEASES_PER_TUNNEL_MAX} leases are served already")
        self.start()
        before = self._served.pop(lease_id, None)
        served = Served(place, dict(ready), Engine(socket_path))
        if before is not None:
            served = replace(served, counts=before.counts, exchanges=before.exchanges)
            before.engine.close()
        self._served[lease_id] = served
        self._forget_oldest()
        for gateway in place.gateways:
            self._route_to(gateway).announce(lease_id, served.ready)
        self._leave_others(lease_id, place.gateways)

    def change_gateways(self, lease_id: UUID, gateways: Sequence[GatewayPlace]) -> None:
        """A replica that is announced is reached by these from now on; what is open goes on. Harmless to repeat."""
        served = self._served.get(lease_id)
        if served is None or served.is_withdrawn:
            return
        for gateway in gateways:
            route = self._route_to(gateway)
            if lease_id not in route.announced:
                route.announce(lease_id, served.ready)
        self._leave_others(lease_id, gateways)

    def withdraw(self, lease_id: UUID) -> None:
        """No new request for it; those that are open go on until they end, or the engine does. Harmless to repeat."""
        served = self._served.get(lease_id)
        if served is None:
            return
        served.is_withdrawn = True
        for route in self._routes.values():
            route.withdraw(lease_id)

    def break_off(self, lease_id: UUID) -> None:
        """Withdraw it, and end at once what is open."""
        self.withdraw(lease_id)
        if lease_id in self._served:
            _let_go(self._served[lease_id])

    def in_flight(self, lease_id: UUID) -> int:
        """Requests that are open now."""
        served = self._served.get(lease_id)
        return len(served.exchanges) if served is not None else 0

    def counts(self, lease_id: UUID) -> Counts:
        """What went through for a lease; of one that was never announced here, nothing."""
        served = self._served.get(lease_id)
        return replace(served.counts) if served is not None else Counts()

    def status(self) -> list[dict[str, Any]]:
        """For `souk-agent status`: each gateway, and the state of the connection to it."""
        now = asyncio.get_running_loop().time()
        return [
            {
                "gateway": route.place.url,
                "leases": len(route.announced),
                **{name: value for name, value in asdict(route.connection.state).items() if name != "since"},
                "up_seconds": round(now - route.connection.state.since, 1) if route.connection.state.is_up else 0.0,
            }
            for route in self._routes.values()
        ]

    def served(self) -> list[dict[str, Any]]:
        """For `souk-agent status`: what went through for each lease that is announced, or still has requests."""
        return [
            {"lease_id": str(lease_id), "in_flight": len(served.exchanges), **asdict(served.counts)}
            for lease_id, served in self._served.items()
            if not served.is_withdrawn or served.exchanges
        ]

    # --- for the routes

    def make_connection(self, place: GatewayPlace, route: GatewayRoute) -> GatewayConnection:
        """A connection that is not dialled yet."""
        return GatewayConnection(
            place.url, place.public_key, node_key=self._key, boot=self._boot, requests=route, tls=self._tls
        )

    def ready_of(self, lease_id: UUID) -> dict[str, Any]:
        """What is announced of a lease."""
        return self._served[lease_id].ready

    def serve(self, stream: Stream, request: Open) -> None:
        """Send a request on to the lease's engine, or refuse it."""
        served = self._served.get(request.lease_id)
        if served is None or served.is_withdrawn:
            stream.reset(Code.REFUSED, "the replica is not here any more")
            return
        if len(served.exchanges) >= EXCHANGES_PER_LEASE_MAX:
            stream.reset(Code.REFUSED, "the replica has too many requests")
            return
        exchanges = served.exchanges
        try:
            exchange = Exchange(stream, request, served.engine, served.counts, over=lambda: exchanges.discard(exchange))
        except Refusal as error:
            stream.reset(Code.REFUSED, str(error))
            return
        exchanges.add(exchange)
        exchange.start()

    # --- below

    def _leave_others(self, lease_id: UUID, gateways: Sequence[GatewayPlace]) -> None:
        wanted = {(gateway.url, gateway.public_key) for gateway in gateways}
        for name, route in self._routes.items():
            if name not in wanted:
                route.withdraw(lease_id)

    def _route_to(self, place: GatewayPlace) -> GatewayRoute:
        name = (place.url, place.public_key)
        if name not in self._routes:
            self._routes[name] = GatewayRoute(self, place)
        return self._routes[name]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for served in self._served.values():
                served.engine.sweep()
                for exchange in list(served.exchanges):
                    exchange.check_time(now)
            self._leave_gateways()

    def _leave_gateways(self) -> None:
        """Close the connection to a gateway to which no replica is announced, once it carries no request."""
        for name, route in list(self._routes.items()):
            if not route.announced and not route.connection.is_busy:
                route.task.cancel()
                del self._routes[name]

    def _live_count(self) -> int:
        return sum(not served.is_withdrawn for served in self._served.values())

    def _is_new(self, lease_id: UUID) -> bool:
        served = self._served.get(lease_id)
        return served is None or served.is_withdrawn

    def _forget_oldest(self) -> None:
        over = len(self._served) - LEASES_KEPT_MAX
        for lease_id in [name for name, served in self._served.items() if served.is_withdrawn][: max(0, over)]:
            _let_go(self._served.pop(lease_id))


def _let_go(served: Served) -> None:
    for exchange in list(served.exchanges):
        exchange.fail(Code.BROKEN, "the replica was stopped")
    served.engine.close()


def allow_files(wanted: int) -> None:
    """As many open files as there may be connections to engines, so far as the system lets us; never fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        log.warning(
            "This process may open %d files; %d requests at once may need %d.", most, EXCHANGES_PER_LEASE_MAX, wanted
        )
