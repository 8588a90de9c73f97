"""How NCCL and gloo use what is known of a gang's network, as variables that a customer's own replace.

    GLOO_SOCKET_IFNAME      the interface that leads to the gang; `lo` alone (torch's documentation of distributed)
    NCCL_SOCKET_IFNAME      the same, in gangs; with `=` where another interface's name begins so: NCCL takes prefixes
    NCCL_SOCKET_FAMILY      AF_INET, in gangs: their addresses are IPv4, and an interface may have others
    NCCL_IB_DISABLE         1, in gangs, where the program can open no InfiniBand device
    NCCL_SOCKET_NTHREADS    in gangs, by the slowest measured link (LINK_TIERS). NCCL: 4 for a generic network of
    NCCL_NSOCKS_PERTHREAD   100 Gbit/s, and a product of both of 64 at most

Source of what NCCL does: the chapter of environment variables of its user guide. Timeouts are not set: over TCP NCCL
has none of its own, and those of torch belong to the program (`COLLECTIVE_TIMEOUT` in our trainer).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

# From so many measured bytes a second on: threads of a connection, and sockets of a thread. One probe is one stream of
# one process, which comes to less than a fast link has. Below, NCCL's own single thread is enough.
LINK_TIERS: Final = ((2_500_000_000, 4, 4), (1_250_000_000, 2, 2))
SOCKETS: Final = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
INFINIBAND: Final = Path("/sys/class/infiniband")


def collective_environment(
    *,
    nodes: int,
    interface: str,
    address: str,
    interfaces: Collection[str],
    has_infiniband: bool,
    bytes_per_second: int | None,
    theirs: Mapping[str, str],
) -> dict[str, str]:
    """The variables for one program of a gang of `nodes`.

    `interfaces`: the names of all that the program sees. `bytes_per_second`: of the slowest link to the gang, None
    where it was not measured. `theirs`: what the customer set; of two
    variables that are bounded together none is set where one of them is theirs.
    """
    found = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    if nodes == 1:
        return found
    if interface:
        is_prefix = any(other != interface and other.startswith(interface) for other in interfaces)
        found["NCCL_SOCKET_IFNAME"] = f"={interface}" if is_prefix else interface
        if _is_ipv4(address):
            found["NCCL_SOCKET_FAMILY"] = "AF_INET"
    if not has_infiniband:
        found["NCCL_IB_DISABLE"] = "1"
    tier = next((each for each in LINK_TIERS if bytes_per_second is not None and bytes_per_second >= each[0]), None)
    if tier is not None and not theirs.keys() & set(SOCKETS):
        found |= {name: str(value) for name, value in zip(SOCKETS, tier[1:], strict=True)}
    return found


def slowest_link(links: Mapping[str, Mapping[str, Any]], addresses: Iterable[str]) -> int | None:
    """Bytes a second of the slowest measured link to these addresses; None where one of them was not measured.

    `links` are the node's own records of probes (`read_links`): whatever does not fit counts as not measured.
    """
    by_address = {seen.get("address"): seen for seen in links.values() if seen.get("is_reached") is True}
    found: list[int] = []
    for address in addresses:
        seen = by_address.get(address, {})
        for name in ("sent_bytes_per_second", "received_bytes_per_second"):
            value = seen.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                return None
            found.append(value)
    return min(found, default=None)


def sees_infiniband(*, is_isolated: bool) -> bool:
    """Whether a program can open an InfiniBand device: no container is given one."""
    try:
        return not is_isolated and any(INFINIBAND.iterdir())
    except OSError:
        return False


def _is_ipv4(address: str) -> bool:
    try:
        IPv4Address(address)
    except ValueError:
        return False
    return True
