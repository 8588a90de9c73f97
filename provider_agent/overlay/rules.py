"""While a lease lasts, its UDP port is open only to its gang's members, whatever the node's other rules.

One chain a lease: before everything else in INPUT; and where programs that may reach the internet are forwarded, which
leave by this node's address, so that the other members' nodes would let them in. Where iptables cannot be had there are
no rules: the encrypted kind needs none, unless the provider's own firewall shuts the port.
"""

from __future__ import annotations

import shlex
from ipaddress import ip_address
from typing import Final
from uuid import UUID

from provider_agent.overlay.place import Overlay
from provider_agent.overlay.system import System
from provider_agent.system.programs import missing

CHAIN_PREFIX: Final = "SOUK-GANG-"
CHAIN_HEX: Final = 16  # a chain's name has 28 characters at most
WAIT: Final = ("-w", "10")
LEASES: Final = "souk+"  # interfaces of leases' own networks (executors/firewall.py); they have no IPv6
TABLES: Final = {"iptables": ("filter", "mangle"), "ip6tables": ("filter",)}

Jump = tuple[str, list[str]]  # table; hook and conditions


def why_not(system: System, address: str) -> str:
    """Why rules cannot be installed for this address although there is a program for them; empty when they can."""
    program = _program_for(address)
    if missing([program]) or all(system.asks(program, *WAIT, "-t", table, "-S") for table in TABLES[program]):
        return ""
    return f"{program} is refused here"


def install(system: System, overlay: Overlay) -> None:
    """Put them in force, or once more; raises ExecutorFailed. Does nothing where there is no iptables."""
    program = _program(overlay)
    if missing([program, f"{program}-restore"]):
        return
    system.run(f"{program}-restore", *WAIT, "--noflush", text=rules(overlay))
    for table, (hook, *conditions) in _jumps(overlay):
        rule = [hook, *conditions, "-j", chain_of(overlay.lease_id)]
        if not system.asks(program, *WAIT, "-t", table, "-C", *rule):
            system.run(program, *WAIT, "-t", table, "-I", *rule)


def remove(system: System, overlay: Overlay) -> None:
    """Take them away; raises ExecutorFailed while some are left, as when another program holds the rules' lock."""
    program = _program(overlay)
    if not missing([program]):
        _remove(system, program, chain_of(overlay.lease_id))


def remove_any(system: System, lease_id: UUID) -> None:
    """Remove those of a lease that has no record."""
    for program in ("iptables", "ip6tables"):
        if not missing([program]) and system.asks(program, *WAIT, "-S", "INPUT"):
            _remove(system, program, chain_of(lease_id))


def rules(overlay: Overlay) -> str:
    """The chains in the form that iptables-restore replaces each table's with in one step."""
    chain = chain_of(overlay.lease_id)
    members = "".join(f"-A {chain} -s {member.address} -j ACCEPT\n" for member in overlay.others)
    accepted = {"filter": members}
    return "".join(
        f"*{table}\n:{chain} - [0:0]\n{accepted.get(table, '')}-A {chain} -j DROP\nCOMMIT\n"
        for table, _ in _jumps(overlay)
    )


def chain_of(lease_id: UUID) -> str:
    """The chain's name."""
    return f"{CHAIN_PREFIX}{lease_id.hex[-CHAIN_HEX:]}"


def _jumps(overlay: Overlay) -> list[Jump]:
    """From where the chain is entered; `mangle` comes before what an engine or the provider accepts in `filter`."""
    to_port = ["-p", "udp", "--dport", str(overlay.me.port)]
    jumps: list[Jump] = [("filter", ["INPUT", *to_port])]
    return jumps if _program(overlay) == "ip6tables" else [*jumps, ("mangle", ["FORWARD", "-i", LEASES, *to_port])]


def _remove(system: System, program: str, chain: str) -> None:
    for table in TABLES[program]:
        command = (program, *WAIT, "-t", table)
        lines = system.run(*command, "-S").splitlines()
        orders = [shlex.split(line) for line in lines if chain in line]
        for order in orders:
            if order[0] == "-A" and order[-2:] == ["-j", chain]:
                system.run(*command, "-D", *order[1:])
        if ["-N", chain] in orders:
            for verb in ("-F", "-X"):
                system.run(*command, verb, chain)


def _program(overlay: Overlay) -> str:
    return _program_for(overlay.me.address)


def _program_for(address: str) -> str:
    return "ip6tables" if ip_address(address).version == 6 else "iptables"
