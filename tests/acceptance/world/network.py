"""The line outside, a router with NAT, and the local network behind it.

    this computer          198.51.100.1   the marketplace listens here: the world outside
    the router   outside   198.51.100.2   masquerades; nothing that begins outside comes through
                 inside    10.77.0.1      also the switch: one port a computer
    laptop                 10.77.0.5      the provider's own computer
    node-1..3              10.77.0.11..13

A cable is cut at the switch: its port drops every frame, and the node sees a link that is up, as with a broken line.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.world.computer import Computer, link, link_here

OUTSIDE_INTERFACE = "souk-outside"
MARKET = "198.51.100.1"
ROUTER_OUTSIDE, ROUTER_OUTSIDE_LATER = "198.51.100.2", "198.51.100.77"
ROUTER_INSIDE = "10.77.0.1"
INSIDE = "10.77.0.0/24"
SSH_PORT = 22
RESET_SECONDS = 2
RULES = f"""
iptables -t nat -A POSTROUTING -s {INSIDE} -o outside -j MASQUERADE
iptables -P FORWARD DROP
iptables -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
iptables -A FORWARD -i inside -j ACCEPT
iptables -P INPUT DROP
iptables -A INPUT -i lo -j ACCEPT
iptables -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
iptables -A INPUT -i inside -j ACCEPT
"""


@dataclass
class Router:
    """NAT towards the outside, a switch towards the inside."""

    computer: Computer

    def connect_outside(self) -> None:
        """Lay the line to this computer. A route to the inside is given too, as a neighbour on that line could."""
        link_here(OUTSIDE_INTERFACE, self.computer, "outside")
        _here("ip", "address", "add", f"{MARKET}/24", "dev", OUTSIDE_INTERFACE)
        _here("ip", "link", "set", OUTSIDE_INTERFACE, "up")
        _here("ip", "route", "add", INSIDE, "via", ROUTER_OUTSIDE, "dev", OUTSIDE_INTERFACE)
        self.computer.shell(
            f"""set -eu
            ip address add {ROUTER_OUTSIDE}/24 dev outside
            ip link set outside up
            ip link add inside type bridge
            ip address add {ROUTER_INSIDE}/24 dev inside
            ip link set inside up
            echo 1 > /proc/sys/net/ipv4/ip_forward
            {RULES}"""
        )

    def connect(self, computer: Computer, address: str) -> None:
        """Lay a cable from a port of the switch to a computer."""
        link(self.computer, f"to-{computer.name}", computer, "eth0")
        self.computer.shell(f"ip link set to-{computer.name} master inside; ip link set to-{computer.name} up")
        computer.shell(
            f"""set -eu
            ip address add {address}/24 dev eth0
            ip link set eth0 up
            ip route add default via {ROUTER_INSIDE}"""
        )

    def cut(self, computer: Computer) -> None:
        """From now on every frame from and to this computer is dropped."""
        self.computer.run("bridge", "link", "set", "dev", f"to-{computer.name}", "state", "0")

    def heal(self, computer: Computer) -> None:
        """Frames pass again."""
        self.computer.run("bridge", "link", "set", "dev", f"to-{computer.name}", "state", "3")

    def limit(self, computer: Computer, megabits: int) -> None:
        """From now on this computer sends no more than so many megabits a second."""
        computer.run("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *_shape(megabits))

    def reset(self) -> None:
        """End every connection to the outside, as a router does that started anew: both ends get a reset."""
        rule = "FORWARD -p tcp -j REJECT --reject-with tcp-reset"
        self.computer.shell(f"iptables -I {rule}; sleep {RESET_SECONDS}; iptables -D {rule}")

    def renumber(self) -> None:
        """Another address outside, as after a night's disconnection: every connection through the old one is dead."""
        self.computer.shell(
            f"""set -eu
            ip address del {ROUTER_OUTSIDE}/24 dev outside
            ip address add {ROUTER_OUTSIDE_LATER}/24 dev outside
            conntrack -F"""
        )
        _here("ip", "route", "replace", INSIDE, "via", ROUTER_OUTSIDE_LATER, "dev", OUTSIDE_INTERFACE)

    def sources_of(self, address: str) -> set[str]:
        """Addresses that connections to `address` come from, as the router's own table has them after translation."""
        # It counts the entries on the other output, in the middle of a line of this one.
        words = ("sh", "-c", 'exec conntrack -L -p tcp -d "$1" 2> /dev/null', "sh", address)
        lines = self.computer.run(*words, is_checked=False).splitlines()
        answers = [[word[4:] for word in line.split() if word.startswith("dst=")] for line in lines]
        return {found[1] for found in answers if len(found) == 2}


def _shape(megabits: int) -> list[str]:
    return f"rate {megabits}mbit burst 64kb latency 50ms".split()


def interfaces_here() -> set[str]:
    """Names of this computer's own."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def _here(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
