"""One gateway from its parts, served until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn

from jobs.gateway.accounting.limits import Limits
from jobs.gateway.accounting.metering import Metering
from jobs.gateway.accounting.spool import Spool
from jobs.gateway.config import MEBIBYTE, GatewayConfig, Identity, open_data
from jobs.gateway.control_sync import ControlPlaneSync
from jobs.gateway.frontend.app import Accept, Answering, Gateway
from jobs.gateway.frontend.connections import IDLE_SECONDS_MAX, Caller, Server
from jobs.gateway.metrics import Metrics
from jobs.gateway.routing.directory import Directory

GRACE_SECONDS = 5  # for what is left when the draining is over
BACKLOG = 2048
TUNNEL_MESSAGE_BYTES_MAX = MEBIBYTE  # frames of a tunnel are 64 KiB at most
FILES_SPARE = 256  # of other kinds than connections
GARBAGE_THRESHOLDS = (1_000, 1_000, 1_000)  # objects; young and old generations, each in turns of the one before
# The disk's thread reads and writes what was used, and the loop gets the interpreter back only after so long: Python's
# own 5 ms would be felt by the slowest requests.
SWITCH_SECONDS = 0.0002

logger = logging.getLogger(__name__)


@dataclass
class Parts:
    """What a gateway is made of; `compose` gets them before the gateway listens."""

    config: GatewayConfig
    identity: Identity
    directory: Directory
    limits: Limits
    spool: Spool
    meter: Metering
    control: ControlPlaneSync
    metrics: Metrics


@dataclass
class Backend:
    """What answers, and what tunnels are handed to."""

    serving: Answering
    accept_tunnel: Accept
    close: Callable[[], Any] | None = None  # awaited when the requests under way have ended


Compose = Callable[[Parts], Backend]  # called in the event loop; may set control's loads, replica_loads, on_table ...


@dataclass(frozen=True)
class Serving:
    """A gateway that listens."""

    identity: Identity
    port: int


async def serve(
    config: GatewayConfig,
    compose: Compose,
    sockets: list[socket.socket] | None = None,
    on_listening: Callable[[Serving], None] | None = None,
) -> None:
    """Until SIGTERM or SIGINT: then requests in flight end, and the last use is reported. Raises ConfigError."""
    server = await build(config, compose, on_listening)
    _collect_garbage_less_often()
    sys.setswitchinterval(SWITCH_SECONDS)
    await server.serve(sockets)


async def build(
    config: GatewayConfig, compose: Compose, on_listening: Callable[[Serving], None] | None = None
) -> Server:
    """A server that does not listen yet: `await server.serve(sockets)`. Raises ConfigError."""
    _allow_files(config.connections_max)
    identity = open_data(config.data)
    directory, metrics = Directory(), Metrics()
    limits = Limits(requests_per_endpoint_max=config.requests_per_endpoint_max)
    spool = Spool(config.data / "spool", bytes_max=config.spool_mib_max * MEBIBYTE)
    meter = Metering(spool, limits)
    control = ControlPlaneSync(config, identity, directory, limits, spool)
    parts = Parts(config, identity, directory, limits, spool, meter, control, metrics)
    backend = compose(parts)
    gateway = Gateway(
        config,
        directory=directory,
        grants=control.grants,
        limits=limits,
        spool=spool,
        serving=backend.serving,
        accept_tunnel=backend.accept_tunnel,
        metrics=metrics,
    )
    server = Server(
        _uvicorn_config(config, gateway),
        drain=gateway.drain,
        close=lambda: _close(parts, backend),
        on_listening=lambda port: on_listening(Serving(identity, port)) if on_listening else None,
    )
    _add_gauges(parts, gateway, server)
    spool.start()
    await control.start()
    return server


def _uvicorn_config(config: GatewayConfig, gateway: Gateway) -> uvicorn.Config:
    Caller.connections_max = config.connections_max
    return uvicorn.Config(
        gateway,
        host=config.bind,
        port=config.port,
        http=Caller,
        ws="websockets-sansio",
        ws_ping_interval=None,  # the tunnel has a heartbeat of its own
        ws_per_message_deflate=False,
        ws_max_size=TUNNEL_MESSAGE_BYTES_MAX,
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=config.tls_cert or None,
        ssl_keyfile=config.tls_key or None,
    )


async def _close(parts: Parts, backend: Backend) -> None:
    """In this order: what is counted is on disk before it is reported."""
    if backend.close is not None:
        with contextlib.suppress(asyncio.CancelledError):
            await backend.close()
    await parts.spool.flush()
    await parts.control.close()
    await parts.spool.close()
    os.close(parts.identity.lock)
    logger.info("The gateway has stopped.")


def _add_gauges(parts: Parts, gateway: Gateway, server: Server) -> None:
    loop = asyncio.get_running_loop()
    control, spool = parts.control, parts.spool
    parts.metrics.gauges |= {
        "connections": ("Open connections, agents' tunnels among them.", lambda: len(server.server_state.connections)),
        "body_bytes": ("Bytes of request bodies that are held.", lambda: gateway.body_bytes),
        "spool_bytes": ("Bytes of use on disk.", lambda: spool.size),
        "spool_unwritten_rows": ("Rows of use that are not on disk yet.", lambda: spool.unwritten),
        "spool_damaged_rows": ("Rows of use that were unreadable after a start.", lambda: spool.damaged),
        "usage_rows_total": ("Rows of use since the start.", lambda: spool.appended),
        "keys": ("Keys that are known.", lambda: len(control.grants)),
        "endpoints": ("Endpoints in the table.", lambda: len(parts.directory.endpoints())),
        "sync_age_seconds": (
            "Since the marketplace answered last; -1: never.",
            lambda: -1.0 if control.synced_at is None else loop.time() - control.synced_at,
        ),
    }


def _collect_garbage_less_often() -> None:
    """A request leaves none that needs looking for, and going through everything holds all requests up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def _allow_files(connections: int) -> None:
    """As many open files as there may be connections, so far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections * 2 + FILES_SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            logger.warning("This process may open %d files; %d connections may need %d.", most, connections, wanted)
