"""The options of a tunnel's TCP connection, at either end."""

from __future__ import annotations

import socket
from typing import Final

UNSENT_BYTES_MAX: Final = 128 * 1024  # in the kernel: more would only stand in a later frame's way


def tune(connected: socket.socket | None) -> None:
    """No frame waits for another's acknowledgement, nor behind what the kernel was given too early.

    On a listening socket it holds for every connection that it accepts (Linux).
    """
    if connected is None or connected.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
