"""A node behind a router with NAT, in network namespaces: it reaches this computer, and nobody reaches it.

this computer  203.0.113.1    the gateway listens here
router         203.0.113.2    masquerades; nothing that begins outside comes through
               10.99.0.1
node           10.99.0.2
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator

HERE, OUTSIDE, OUTSIDE_LATER = "203.0.113.1", "203.0.113.2", "203.0.113.77"
NEEDED = ("ip", "iptables")
COMMAND_SECONDS_MAX = 20
UP = """
ip netns add {router}
ip netns add {node}
ip link add {line} type veth peer name outside netns {router}
ip address add 203.0.113.1/24 dev {line}
ip link set {line} up
ip -n {router} address add 203.0.113.2/24 dev outside
ip -n {router} link set outside up
ip -n {router} link add inside type veth peer name eth0 netns {node}
ip -n {router} address add 10.99.0.1/24 dev inside
ip -n {router} link set inside up
ip -n {node} link set lo up
ip -n {node} address add 10.99.0.2/24 dev eth0
ip -n {node} link set eth0 up
ip -n {node} route add default via 10.99.0.1
ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1
ip netns exec {router} iptables -t nat -A POSTROUTING -o outside -j MASQUERADE
ip netns exec {router} iptables -P FORWARD DROP
ip netns exec {router} iptables -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
ip netns exec {router} iptables -A FORWARD -i inside -j ACCEPT
"""


def why_not() -> str:
    """Why there can be none here; empty when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}; apt-get install -y iproute2 iptables"
    probe = f"souk-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return ""


class Nat:
    """Up, until `down`."""

    def __init__(self) -> None:
        number = os.getpid()
        self.router, self.node, self.line = f"souk-r{number}", f"souk-n{number}", f"souk-l{number}"

    def up(self) -> None:
        """Lay every line."""
        for line in UP.strip().format(**vars(self)).splitlines():
            _do(*shlex.split(line))

    def down(self) -> None:
        """With the namespaces go their interfaces, and with those the line's end here."""
        for name in (self.router, self.node):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.line], check=False, capture_output=True)

    def renumber(self) -> None:
        """The provider's line gets another address: every open connection is dead, and neither end is notified."""
        _do("ip", "-n", self.router, "address", "delete", f"{OUTSIDE}/24", "dev", "outside")
        _do("ip", "-n", self.router, "address", "add", f"{OUTSIDE_LATER}/24", "dev", "outside")

    def listening(self) -> list[str]:
        """Addresses at which the node takes connections."""
        tables = [_do("ip", "netns", "exec", self.node, "cat", f"/proc/net/tcp{family}") for family in ("", "6")]
        return [line.split()[1] for table in tables for line in table.splitlines()[1:] if line.split()[3] == "0A"]


@contextlib.contextmanager
def behind_nat() -> Iterator[Nat]:
    """Up within."""
    made = Nat()
    try:
        made.up()
        yield made
    finally:
        made.down()


def _do(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX).stdout
