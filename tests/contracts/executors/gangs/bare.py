"""A gang's network without an engine: the program is a process in a network namespace of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.overlay import INTERFACE, Overlay, Overlays, rules
from provider_agent.overlay.overlays import NAMESPACES
from provider_agent.overlay.system import Program, System
from provider_agent.overlay.wireguard import SOCKETS
from provider_agent.protocol import GangMember, GangPlace, OverlayKind, gang_address
from tests.contracts.executors.gangs.fabric import NODE_ADDRESSES, Fabric
from tests.integration.provider_agent.conftest import eventually

LEAVING_SECONDS = 10.0


@dataclass
class Node:
    """The first node of the fabric, with the folder of its gangs."""

    fabric: Fabric
    folder: Path
    key: Path
    kind: OverlayKind

    @property
    def system(self) -> System:
        return System(tuple(self.fabric.inside(self.fabric.nodes[0])))

    @property
    def overlays(self) -> Overlays:
        """What a new agent has."""
        return Overlays(self.folder, key_path=self.key, kind=self.kind, address=NODE_ADDRESSES[0], system=self.system)

    def overlay(self, port: int) -> Overlay:
        """A gang of this node and the second one."""
        own = X25519PrivateKey.from_private_bytes(bytes.fromhex(self.key.read_text()))
        members = [
            GangMember(
                rank=rank,
                address=NODE_ADDRESSES[rank],
                port=port,
                public_key=key.public_key().public_bytes_raw().hex(),
                overlay_address=gang_address(rank),
            )
            for rank, key in enumerate((own, X25519PrivateKey.generate()))
        ]
        place = GangPlace(nodes=2, master_address=gang_address(0), master_port=port, overlay=self.kind, members=members)
        return Overlay(uuid4(), uuid4(), place)

    def left(self, overlay: Overlay, pid: int) -> list[str]:
        """What there is of this gang's network, by name."""
        chains = [each for each in tables(self.system).split() if each == rules.chain_of(overlay.lease_id)]
        places = [*NAMESPACES.glob(overlay.name), *SOCKETS.glob(f"{overlay.name}*"), *self.folder.glob("*")]
        found = [path.name for path in places if overlay.name in path.name or str(overlay.lease_id) in path.name]
        links = [overlay.name] * self.system.asks("ip", "link", "show", overlay.name)
        inside = [INTERFACE] * Program(pid, "").has_interface(INTERFACE)
        return [*chains, *found, *links, *inside, *map(str, daemons(overlay.name))]

    def await_nothing(self, overlay: Overlay, pid: int) -> None:
        """wireguard-go takes a moment to end."""
        eventually(lambda: self.left(overlay, pid) == [], f"nothing left of {self.left(overlay, pid)}", LEAVING_SECONDS)

    def is_whole(self, overlay: Overlay, pid: int) -> bool:
        """Whether the program has its interface and address, the port is open, and the rules are in force."""
        inside = System(("nsenter", f"--net=/proc/{pid}/ns/net"))
        has_address = f"{overlay.me.overlay_address}/16" in inside.run("ip", "address", "show")
        table = self.system.run("cat", "/proc/net/udp", "/proc/net/udp6")
        return (
            has_address
            and f":{overlay.me.port:04X} " in table
            and rules.chain_of(overlay.lease_id) in self.left(overlay, pid)
        )


@contextmanager
def program() -> Iterator[int]:
    """A process in a network namespace of its own; its id."""
    ours = Path("/proc/self/ns/net").readlink()
    process = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        eventually(lambda: Path(f"/proc/{process.pid}/ns/net").readlink() != ours, "the program's namespace")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def daemons(name: str) -> list[int]:
    """Process ids of the wireguard-go of an interface."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"wireguard-go") and name.encode() in words:
            found.append(int(path.parent.name))
    return found


def tables(system: System) -> str:
    """All rules of a network namespace."""
    return "".join(system.run("iptables", "-t", table, "-S") for table in ("filter", "mangle"))
