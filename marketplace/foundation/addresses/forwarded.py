"""Which address proxies vouch for, and what limits count an address under: for every process, with or without Django.

A setting says which proxies stand in front: none (empty), how many (`2`), or which (`10.0.0.0/8, 192.0.2.7`);
client_address.py describes it. Each proxy appends who it saw to X-Forwarded-For, so the header is read from its end.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

FORWARDED_HEADER: Final = "X-Forwarded-For"
HOPS_MAX: Final = 20  # proxies in front, and entries of the header that are read
IPV6_CUSTOMER_BITS: Final = (
    64  # what one customer of a provider has for themselves, to change addresses in as they like
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class TrustedProxies:
    """How many proxies are trusted, or which."""

    hops: int = 0
    networks: tuple[Network, ...] = ()

    def has(self, address: Address) -> bool:
        """Whether it is the address of a trusted proxy."""
        return any(address in network for network in self.networks)


def parse_trusted_proxies(text: str) -> TrustedProxies:
    """The setting's meaning; raises ValueError where it has none."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        if len(parts) == 1 and parts[0].lstrip("-").isdigit():
            if not 0 <= int(parts[0]) <= HOPS_MAX:
                raise ValueError(f"{parts[0]} is not between 0 and {HOPS_MAX}")
            return TrustedProxies(hops=int(parts[0]))
        networks = tuple(ipaddress.ip_network(part) for part in parts)
        if any(network.prefixlen == 0 for network in networks):
            raise ValueError("a network of all addresses would trust everybody")
    except ValueError as error:
        raise ValueError(
            f"{text!r}: {error}. Give a number of proxies, or their networks and addresses separated by commas."
        ) from error
    return TrustedProxies(networks=networks)


def address_behind(remote: str, header: str, trusted: TrustedProxies) -> str:
    """The address of who sent a request, as far as we or the proxies saw it; empty where nobody did.

    `remote` is the connection's other end, `header` its X-Forwarded-For.
    """
    seen = [_parse(part) for part in [*header.rsplit(",", HOPS_MAX)[-HOPS_MAX:], remote]]
    found = _by_hops(seen, trusted.hops) if trusted.hops else _by_network(seen, trusted)
    return str(found) if found else ""


def counted_address(address: str) -> str:
    """What limits count an address under: itself, or of IPv6 the whole network that one customer has."""
    parsed = _parse(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, IPV6_CUSTOMER_BITS), strict=False))
    return address


def _by_hops(seen: list[Address | None], hops: int) -> Address | None:
    vouched = seen[-1 - hops] if len(seen) > hops else None
    return vouched or seen[-1]


def _by_network(seen: list[Address | None], trusted: TrustedProxies) -> Address | None:
    found: Address | None = None
    for address in reversed(seen):
        if address is None:
            return found
        found = address
        if not trusted.has(address):
            return found
    return found


def _parse(text: str) -> Address | None:
    """An address with or without a port; None for anything else. IPv4 within IPv6 is IPv4."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
