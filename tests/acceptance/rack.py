"""Two nodes behind one router with NAT, in network namespaces of this computer: lighter than a world, for serving.

this computer  198.18.7.1      the marketplace and its gateway listen here: the world outside
router         198.18.7.2      masquerades; nothing that begins outside comes through
node-1, 2      10.98.1.2, 10.98.2.2
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

HERE = "198.18.7.1"
NODES = ("near", "far")
NAMESPACES = Path("/run/netns")
COMMAND_SECONDS_MAX = 20
LINE = """
ip netns add {router}
ip link add {line} type veth peer name outside netns {router}
ip address add 198.18.7.1/24 dev {line}
ip link set {line} up
ip -n {router} address add 198.18.7.2/24 dev outside
ip -n {router} link set outside up
ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1
ip netns exec {router} iptables -t nat -A POSTROUTING -o outside -j MASQUERADE
ip netns exec {router} iptables -P FORWARD DROP
ip netns exec {router} iptables -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
ip netns exec {router} iptables -A FORWARD ! -i outside -o outside -j ACCEPT
"""
NODE = """
ip netns add {node}
ip link add in-{number} netns {router} type veth peer name eth0 netns {node}
ip -n {router} address add 10.98.{number}.1/24 dev in-{number}
ip -n {router} link set in-{number} up
ip -n {node} link set lo up
ip -n {node} address add 10.98.{number}.2/24 dev eth0
ip -n {node} link set eth0 up
ip -n {node} route add default via 10.98.{number}.1
"""


class Rack:
    """Up within `with rack()`; `number` is the process that makes it."""

    def __init__(self, number: int) -> None:
        self.router, self.line = f"souk-r{number}", f"souk-l{number}"
        self.namespaces = {name: f"souk-{name}{number}" for name in NODES}

    def up(self) -> None:
        """Lay every line."""
        _each(LINE.format(router=self.router, line=self.line))
        for number, node in enumerate(self.namespaces.values(), 1):
            _each(NODE.format(router=self.router, node=node, number=number))

    def down(self) -> None:
        """With the namespaces go their interfaces, and with those the line's end here."""
        for name in (self.router, *self.namespaces.values()):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.line], check=False, capture_output=True)

    def way(self, name: str) -> list[str]:
        """What comes before a command that is to be run on that node."""
        return ["ip", "netns", "exec", self.namespaces[name]]

    def listening(self, name: str) -> list[str]:
        """Addresses beyond its own loopback at which a node takes connections."""
        tables = [_do(*self.way(name), "cat", f"/proc/net/tcp{family}") for family in ("", "6")]
        places = [line.split()[1] for table in tables for line in table.splitlines()[1:] if line.split()[3] == "0A"]
        return [place for place in places if not place.startswith(("0100007F", "00000000000000000000000001000000"))]


@contextlib.contextmanager
def rack() -> Iterator[Rack]:
    """Up within. One that a killed process left would get what is meant for this one: both have the same addresses."""
    for path in NAMESPACES.glob("souk-r*"):
        number = path.name.removeprefix("souk-r")
        if number.isdigit() and not Path("/proc", number).exists():
            Rack(int(number)).down()
    made = Rack(os.getpid())
    try:
        made.up()
        yield made
    finally:
        made.down()


def _each(script: str) -> None:
    for line in script.strip().splitlines():
        _do(*shlex.split(line))


def _do(*words: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
    assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
    return done.stdout
