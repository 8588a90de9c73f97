"""While a lease lasts, its UDP port is open to its gang's members, whatever the node's rules say, and to nobody else.

One chain a lease, before everything else in INPUT. Where iptables cannot be had there are no rules: the encrypted kind
needs none, unless the provider's own firewall shuts the port.
"""

from __future__ import annotations

import shlex
from ipaddress import ip_address
from typing import Final
from uuid import UUID

from provider_agent.overlay.place import Overlay
from provider_agent.overlay.system import System, missing

CHAIN_PREFIX: Final = "SOUK-GANG-"
CHAIN_HEX: Final = 16  # a chain's name has 28 characters at most
WAIT: Final = ("-w", "10")


def install(system: System, overlay: Overlay) -> None:
    """Put them in force, or once more; raises ExecutorFailed. Does nothing where there is no iptables."""
    program = _program(overlay)
    if missing([program, f"{program}-restore"]):
        return
    system.run(f"{program}-restore", *WAIT, "--noflush", text=rules(overlay))
    if not system.asks(program, *WAIT, "-C", "INPUT", *_jump(overlay)):
        system.run(program, *WAIT, "-I", "INPUT", *_jump(overlay))


def remove(system: System, overlay: Overlay) -> None:
    """Take them away; raises ExecutorFailed while some are left, as when another program holds the rules' lock."""
    program = _program(overlay)
    if not missing([program]):
        _remove(system, program, chain_of(overlay.lease_id))


def remove_any(system: System, lease_id: UUID) -> None:
    """Take away those of a lease of which nothing else is known."""
    for program in ("iptables", "ip6tables"):
        if not missing([program]) and system.asks(program, *WAIT, "-S", "INPUT"):
            _remove(system, program, chain_of(lease_id))


def _remove(system: System, program: str, chain: str) -> None:
    lines = system.run(program, *WAIT, "-S").splitlines()
    orders = [shlex.split(line) for line in lines if chain in line]
    for order in orders:
        if order[0] == "-A" and order[-2:] == ["-j", chain]:
            system.run(program, *WAIT, "-D", *order[1:])
    if ["-N", chain] in orders:
        for verb in ("-F", "-X"):
            system.run(program, *WAIT, verb, chain)


def rules(overlay: Overlay) -> str:
    """The chain in the form that iptables-restore replaces it with in one step."""
    chain = chain_of(overlay.lease_id)
    members = "".join(f"-A {chain} -s {member.address} -j ACCEPT\n" for member in overlay.others)
    return f"*filter\n:{chain} - [0:0]\n{members}-A {chain} -j DROP\nCOMMIT\n"


def chain_of(lease_id: UUID) -> str:
    """The chain's name."""
    return f"{CHAIN_PREFIX}{lease_id.hex[-CHAIN_HEX:]}"


def _jump(overlay: Overlay) -> list[str]:
    return ["-p", "udp", "--dport", str(overlay.me.port), "-j", chain_of(overlay.lease_id)]


def _program(overlay: Overlay) -> str:
    return "ip6tables" if ip_address(overlay.me.address).version == 6 else "iptables"
