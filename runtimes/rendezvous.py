"""The rendezvous of a gang: wait for the interface that leads to it, then for rank zero.

A container's network namespace exists only once it runs, so its gang's interface comes a moment after the start; and
the other nodes may still be fetching their image.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from collections.abc import Callable, Mapping

from runtimes.contract import Env

INTERFACE_SECONDS_MAX = 120.0
RANK_ZERO_SECONDS_MAX = 3600.0  # an image may be as long on its way (provider_agent)
CONNECT_SECONDS_MAX = 5.0
POLL_SECONDS = 0.2
SIOCGIFADDR = 0x8915


class RendezvousError(Exception):
    """The gang was not there in time."""


def wait_for_gang(
    env: Mapping[str, str],
    *,
    interface_seconds: float = INTERFACE_SECONDS_MAX,
    rank_zero_seconds: float = RANK_ZERO_SECONDS_MAX,
) -> None:
    """Return once this node can reach its gang; at once if the gang has no other node. Raises RendezvousError."""
    if int(env.get(Env.NODES) or 1) == 1:
        return
    interface, address = env.get(Env.INTERFACE, ""), env.get(Env.ADDRESS, "")
    if interface and "." in address:
        _wait(lambda: address_of(interface) == address, interface_seconds, f"the interface {interface} ({address})")
    if env.get(Env.NODE_RANK, "0") != "0":
        master = env[Env.MASTER_ADDR], int(env[Env.MASTER_PORT])
        _wait(lambda: answers(master), rank_zero_seconds, f"rank zero at {master[0]}:{master[1]}")


def address_of(interface: str) -> str | None:
    """The IPv4 address of an interface of this computer; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def answers(place: tuple[str, int]) -> bool:
    """Whether a process accepts connections there."""
    try:
        with socket.create_connection(place, timeout=CONNECT_SECONDS_MAX):
            return True
    except OSError:
        return False


def _wait(is_there: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > until:
            raise RendezvousError(f"{what} was not there within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
