"""While a lease lasts, its UDP port is open to its gang's members, whatever the node's rules say, and to nobody else.

One chain a lease, before everything else in INPUT. Where iptables cannot be had there are no rules: the encrypted kind
needs none, unless the provider's own firewall shuts the port.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from provider_agent.overlay.place import Overlay
from provider_agent.overlay.system import System, missing

CHAIN_PREFIX: Final = "SOUK-GANG-"
CHAIN_HEX: Final = 16  # a chain's name has 28 characters at most
WAIT: Final = ("-w", "10")
JUMPS_MAX: Final = 16


def install(system: System, overlay: Overlay) -> None:
    """Put them in force, or once more; raises ExecutorFailed. Does nothing where there is no iptables."""
    program = _program(overlay)
    if missing([program, f"{program}-restore"]):
        return
    system.run(f"{program}-restore", *WAIT, "--noflush", text=rules(overlay))
    if not system.asks(program, *WAIT, "-C", "INPUT", *_jump(overlay)):
        system.run(program, *WAIT, "-I", "INPUT", *_jump(overlay))


def remove(system: System, overlay: Overlay) -> None:
    """Take them away; repeating it changes nothing."""
    program = _program(overlay)
    if missing([program]):
        return
    for _ in range(JUMPS_MAX):
        if not system.asks(program, *WAIT, "-D", "INPUT", *_jump(overlay)):
            break
    for order in ("-F", "-X"):
        system.asks(program, *WAIT, order, chain_of(overlay))


def rules(overlay: Overlay) -> str:
    """The chain in the form that iptables-restore replaces it with in one step."""
    chain = chain_of(overlay)
    members = "".join(f"-A {chain} -s {member.address} -j ACCEPT\n" for member in overlay.others)
    return f"*filter\n:{chain} - [0:0]\n{members}-A {chain} -j DROP\nCOMMIT\n"


def chain_of(overlay: Overlay) -> str:
    """The chain's name."""
    return f"{CHAIN_PREFIX}{overlay.lease_id.hex[-CHAIN_HEX:]}"


def _jump(overlay: Overlay) -> list[str]:
    return ["-p", "udp", "--dport", str(overlay.me.port), "-j", chain_of(overlay)]


def _program(overlay: Overlay) -> str:
    return "ip6tables" if ip_address(overlay.me.address).version == 6 else "iptables"
