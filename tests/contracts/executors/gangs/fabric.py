"""A fabric: two nodes of one provider and a neighbour on one wire, each in a network namespace of its own.

switch       203.0.113.254   a hub, so that every port gets every packet; the marketplace is here, too
node 0, 1    203.0.113.1, 2  an engine and an agent each; incoming packets are dropped but for port 80
neighbour    203.0.113.3     another node of the fabric, which is not in the gang
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contracts.executors.world import SERVER

SWITCH_ADDRESS, NEIGHBOUR_ADDRESS = "203.0.113.254", "203.0.113.3"
NODE_ADDRESSES = ("203.0.113.1", "203.0.113.2")
CLONE_NEWNET = 0x40000000
OPEN_PORT = 80
NODE_RULES = (
    "iptables -P INPUT DROP",
    "iptables -A INPUT -i lo -j ACCEPT",
    "iptables -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
    f"iptables -A INPUT -p tcp --dport {OPEN_PORT} -j ACCEPT",
)


@dataclass
class Fabric:
    """Names of the namespaces."""

    switch: str
    nodes: list[str]
    neighbour: str
    servers: list[subprocess.Popen[str]] = field(default_factory=list)

    def inside(self, name: str) -> list[str]:
        """The command that enters a namespace's network, and nothing else of it."""
        return ["nsenter", f"--net=/run/netns/{name}"]

    def run(self, name: str, command: str) -> str:
        """Run one command there; its output."""
        done = subprocess.run([*self.inside(name), *command.split()], check=True, capture_output=True, text=True)
        return done.stdout

    def python(self, name: str, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a few lines of Python there."""
        command = [*self.inside(name), sys.executable, "-I", "-u", "-c", code, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def enter_switch(self) -> None:
        """Take the calling thread into the switch's network."""
        with Path(f"/run/netns/{self.switch}").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def make_fabric() -> Iterator[Fabric]:
    """All namespaces, joined; gone afterwards with all that is in them."""
    prefix = f"gangs-{os.getpid()}"
    fabric = Fabric(f"{prefix}-switch", [f"{prefix}-0", f"{prefix}-1"], f"{prefix}-m")
    ends = {**dict(zip(fabric.nodes, NODE_ADDRESSES, strict=True)), fabric.neighbour: NEIGHBOUR_ADDRESS}
    try:
        for name in (fabric.switch, *ends):
            subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
            fabric.run(name, "ip link set lo up")
        fabric.run(fabric.switch, "ip link add hub type bridge ageing_time 0")
        fabric.run(fabric.switch, f"ip address add {SWITCH_ADDRESS}/24 dev hub")
        fabric.run(fabric.switch, "ip link set hub up")
        for number, (name, address) in enumerate(ends.items()):
            fabric.run(name, f"ip link add wire0 type veth peer name port{number} netns {fabric.switch}")
            fabric.run(name, f"ip address add {address}/24 dev wire0")
            fabric.run(name, "ip link set wire0 up")
            fabric.run(name, f"ip route add default via {SWITCH_ADDRESS}")
            fabric.run(fabric.switch, f"ip link set port{number} master hub up")
        for name in fabric.nodes:
            for rule in NODE_RULES:
                fabric.run(name, rule)
            fabric.servers.append(_serve(fabric, name))
        yield fabric
    finally:
        for server in fabric.servers:
            server.kill()
            server.wait()
        for name in (*ends, fabric.switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _serve(fabric: Fabric, name: str) -> subprocess.Popen[str]:
    server = fabric.python(name, SERVER, str(OPEN_PORT))
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server
