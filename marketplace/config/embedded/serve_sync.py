"""Serves jobs.sync.app: `python -m marketplace.config.embedded.serve_sync --bind 127.0.0.1 --port 8001`, or `--fd FD`.

uvicorn's own command has no bound on how slowly a request may come, and takes every socket for a Unix one.
"""

from __future__ import annotations

import argparse
import socket

import uvicorn

from jobs.gateway.frontend.connections import Server
from marketplace.config.web.connections import WebConnection

GRACE_SECONDS = 2  # the held requests of agents, which ask again
BACKLOG = 2048
CONNECTIONS_MAX = 24_000  # more than may be held: those beyond are answered at once


class SyncConnection(WebConnection):
    """An agent's. A provider has as many behind one address as they like."""

    connections_max = CONNECTIONS_MAX
    counts_addresses = False


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, help="a socket that the parent listens on")
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    asked = parser.parse_args()
    if asked.fd is not None:
        listener = socket.socket(fileno=asked.fd)
    else:
        family = socket.AF_INET6 if ":" in asked.bind else socket.AF_INET
        listener = socket.create_server((asked.bind, asked.port), family=family, backlog=BACKLOG)
    config = uvicorn.Config(
        "jobs.sync.app:application",
        http=SyncConnection,
        ws="none",
        loop="uvloop",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    Server(config, drain=_nothing, close=_nothing, on_listening=lambda port: None).run(sockets=[listener])


async def _nothing() -> None:
    """There is nothing to do before and after the requests."""


if __name__ == "__main__":
    main()
