"""Ports that nobody uses."""

from __future__ import annotations

import os
import socket
from contextlib import closing

from provider_agent.protocol import PROBE_PORT_FIRST, PROBE_PORT_LAST

ADDRESS = "127.0.0.1"


def free_ports() -> tuple[int, int]:
    """Two ports of the range that nobody has just now."""
    found = []
    for port in range(PROBE_PORT_FIRST + os.getpid() % 150, PROBE_PORT_LAST):
        with closing(socket.socket()) as each:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if each.connect_ex((ADDRESS, port)) != 0:
                found.append(port)
        if len(found) == 2:
            return found[0], found[1]
    raise AssertionError("no free port")
