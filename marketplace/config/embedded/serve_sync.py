"""Serves jobs.sync.app on a socket that the parent listens on: `python -m marketplace.config.embedded.serve_sync FD`.

uvicorn's own --fd takes every socket for a Unix one, and so leaves Nagle's delay on TCP connections.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

GRACE_SECONDS = 2  # the held requests of agents, which ask again


def main(fd: int) -> None:
    """Serve until SIGTERM."""
    config = uvicorn.Config(
        "jobs.sync.app:application", access_log=False, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    main(int(sys.argv[1]))
