"""Keeps containers that may reach the internet from everything else: the node, its neighbours, other tenants.

The rules sit in the table `mangle` before routing, for every interface whose name begins with BRIDGE_PREFIX. There
they come before whatever the engine or the provider has in the table `filter`, and hold for packets to the node
itself as well as for those that it would forward. They are one chain for all leases, installed before the first
network of a lease and removed with the last; it is replaced in one step, so that there is no moment without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from provider_agent.overlay.system import System
from provider_agent.system import capabilities
from provider_agent.system.programs import missing

CHAIN = "SOUK-EGRESS"
CHAIN_INBOUND = "SOUK-INBOUND"
BRIDGE_PREFIX = "souk"
WAIT_SECONDS = "10"
JUMPS_MAX = 16
MAIL_PORTS = "25,465,587"
# Of one lease; enough for downloads over many connections, too few to scan networks or to flood an address.
CONNECTIONS_PER_SECOND_MAX = 50
CONNECTIONS_BURST = 500
# Special-purpose addresses (RFC 6890): this network, private, shared by carriers, loopback, link-local with the clouds'
# metadata, benchmarking, multicast, reserved with broadcast.
DENIED_NETWORKS = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
)


@dataclass(frozen=True)
class Firewall:
    """The rules of one network namespace; `prefix` is a command that enters it (tests have engines in their own)."""

    prefix: tuple[str, ...] = ()

    def install(self) -> None:
        """Put the rules in force, or once more; raises ExecutorFailed where they cannot be."""
        self._system.run("iptables-restore", "-w", WAIT_SECONDS, "--noflush", text=rules())
        for hook, chain, where in _jumps():
            if not self._system.asks("iptables", *_jump("-C", hook, chain, where)):
                self._system.run("iptables", *_jump("-I", hook, chain, where))
        has_ipv6 = self._system.asks("ip6tables", "-w", WAIT_SECONDS, "-t", "mangle", "-S")
        if has_ipv6 and not self._system.asks("ip6tables", *_drop_all("-C")):
            self._system.run("ip6tables", *_drop_all("-I"))

    def remove(self) -> None:
        """Take the rules away; repeating it changes nothing."""
        for hook, chain, where in _jumps():
            for _ in range(JUMPS_MAX):
                if not self._system.asks("iptables", *_jump("-D", hook, chain, where)):
                    break
            for order in ("-F", "-X"):
                self._system.asks("iptables", "-w", WAIT_SECONDS, "-t", "mangle", order, chain)
        self._system.asks("ip6tables", *_drop_all("-D"))

    def why_not(self) -> str:
        """Why these rules cannot be installed; empty when they can."""
        if lacking := missing(["iptables", "iptables-restore"]):
            return f"{lacking[0]} is not installed"
        if self._system.asks("iptables", "-w", WAIT_SECONDS, "-t", "mangle", "-S"):
            return ""
        powers = capabilities.lacking(capabilities.FOR_EGRESS)
        return f"the agent lacks {powers[0]}" if powers else "iptables is refused here"

    @property
    def _system(self) -> System:
        return System(self.prefix, "The network cannot be closed off")


def rules() -> str:
    """Both chains, in the form that iptables-restore replaces them with in one step."""
    denied = "\n".join(f"-A {CHAIN} -d {network} -j DROP" for network in DENIED_NETWORKS)
    return (
        "*mangle\n"
        f":{CHAIN} - [0:0]\n"
        f":{CHAIN_INBOUND} - [0:0]\n"
        f"-A {CHAIN} -m addrtype --dst-type LOCAL -j DROP\n"
        f"{denied}\n"
        f"-A {CHAIN} -p tcp -m multiport --dports {MAIL_PORTS} -j DROP\n"
        f"-A {CHAIN} -m conntrack --ctstate NEW -m hashlimit --hashlimit-name souk --hashlimit-mode srcip"
        f" --hashlimit-above {CONNECTIONS_PER_SECOND_MAX}/sec --hashlimit-burst {CONNECTIONS_BURST} -j DROP\n"
        f"-A {CHAIN_INBOUND} -m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP\n"
        "COMMIT\n"
    )


def _jumps() -> list[tuple[str, str, list[str]]]:
    """What comes from a lease, before routing; what goes to one, while it is forwarded."""
    return [
        ("PREROUTING", CHAIN, ["-i", f"{BRIDGE_PREFIX}+"]),
        ("FORWARD", CHAIN_INBOUND, ["-o", f"{BRIDGE_PREFIX}+"]),
    ]


def _jump(order: str, hook: str, chain: str, where: list[str]) -> list[str]:
    return ["-w", WAIT_SECONDS, "-t", "mangle", order, hook, *where, "-j", chain]


def _drop_all(order: str) -> list[str]:
    """Containers are given no IPv6 addresses; should one make itself one, it leads nowhere."""
    return ["-w", WAIT_SECONDS, "-t", "mangle", order, "PREROUTING", "-i", f"{BRIDGE_PREFIX}+", "-j", "DROP"]
