"""The plain kind: the kernel's VXLAN, to the members' addresses and no other. Nothing is encrypted.

An eavesdropper on the fabric's network can read it, and a sender with a member's address can inject packets.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from provider_agent.overlay.place import INTERFACE, Overlay
from provider_agent.overlay.system import System
from provider_agent.system.programs import missing

OVERHEAD_BYTES: Final = 70  # of each packet, over IPv6
PROBE_PORT: Final = "31499"
NUMBER_BYTES: Final = 3  # of a VXLAN's network identifier


def why_not(system: System, probe: str) -> str:
    """Why this kind is not available here; empty when it is. `probe`: an unused interface name."""
    if lacking := missing(["bridge", "iptables", "iptables-restore"]):
        return f"{lacking[0]} is not installed"
    number = str(secrets.randbelow(2 ** (8 * NUMBER_BYTES)))  # another agent may be looking, too
    if not system.asks("ip", "link", "add", probe, "type", "vxlan", "id", number, "dstport", PROBE_PORT):
        return "the kernel has no VXLAN"
    system.asks("ip", "link", "delete", probe)
    return ""


def make(system: System, overlay: Overlay) -> None:
    """Make the interface; it learns nothing, so that it sends to members alone."""
    number = str(network_number(overlay))
    tunnel = ["id", number, "local", overlay.me.address, "dstport", str(overlay.me.port), "nolearning"]
    system.run("ip", "link", "add", overlay.name, "type", "vxlan", *tunnel)
    system.run("ip", "link", "set", overlay.name, "address", hardware_address(overlay.me.rank))
    for member in overlay.others:
        there = ["dst", member.address, "port", str(member.port)]
        system.run("bridge", "fdb", "append", hardware_address(member.rank), "dev", overlay.name, *there)


def add_neighbours(inside: System, overlay: Overlay) -> None:
    """In the program's namespace: each member's hardware address, so that no ARP request is needed."""
    for member in overlay.others:
        lladdr = ["lladdr", hardware_address(member.rank), "nud", "permanent"]
        inside.run("ip", "neighbour", "replace", member.overlay_address, *lladdr, "dev", INTERFACE)


def network_number(overlay: Overlay) -> int:
    """The network's number: the same for every member, another in every attempt."""
    return int.from_bytes(hashlib.sha256(overlay.attempt_id.bytes).digest()[:NUMBER_BYTES], "big")


def hardware_address(rank: int) -> str:
    """Of the member of this rank: locally administered, so no maker's."""
    return "02:53:4b:" + ":".join(f"{byte:02x}" for byte in rank.to_bytes(3, "big"))
