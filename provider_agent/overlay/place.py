"""A gang's network as one lease sees it: from the signed assignment, checked before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from uuid import UUID

from provider_agent.errors import ExecutorFailed
from provider_agent.protocol import GANG_NETWORK, GANG_PORT_FIRST, GANG_PORTS, Assignment, GangMember, GangPlace

INTERFACE: Final = "souk0"  # as the program sees it
NAME_PREFIX: Final = "soukg"  # as the node sees it, while it is being made
PROBE_PREFIX: Final = f"{NAME_PREFIX}p"  # no hexadecimal digit: of none of those
NAME_HEX: Final = 10  # an interface's name has 15 characters at most
PORTS: Final = range(GANG_PORT_FIRST, GANG_PORT_FIRST + GANG_PORTS)


@dataclass(frozen=True)
class Overlay:
    """What one lease's interface is made of."""

    lease_id: UUID
    attempt_id: UUID
    gang: GangPlace

    @property
    def name(self) -> str:
        """The interface's name on the node; no two leases share it."""
        return name_of(self.lease_id)

    @property
    def me(self) -> GangMember:
        """This node among the members."""
        return self.gang.members[self.gang.node_rank]

    @property
    def others(self) -> list[GangMember]:
        """Every other member."""
        return [member for member in self.gang.members if member.rank != self.gang.node_rank]

    def as_dict(self) -> dict[str, Any]:
        """JSON, for the node's own record."""
        ids = {"lease_id": str(self.lease_id), "attempt_id": str(self.attempt_id)}
        return {**ids, "gang": self.gang.model_dump(mode="json")}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Overlay:
        """From such a record; raises KeyError or ValueError."""
        return cls(UUID(data["lease_id"]), UUID(data["attempt_id"]), GangPlace.model_validate(data["gang"]))


def name_of(lease_id: UUID) -> str:
    """Of a lease's interface on the node, and of its program's network namespace."""
    return f"{NAME_PREFIX}{lease_id.hex[-NAME_HEX:]}"


def overlay_of(assignment: Assignment, *, kind: str, public_key: str, address: str) -> Overlay:
    """The overlay of an assignment to a gang, for a node that offers `kind` and is known by `public_key` at `address`.

    Raises ExecutorFailed with what does not fit; nothing was made then.
    """
    gang = assignment.gang
    if problem := _problem(gang, kind, public_key) or _not_ours(gang, address):
        raise ExecutorFailed(f"This node cannot join the gang's network: {problem}.")
    return Overlay(assignment.lease_id, assignment.attempt_id, gang)


def _problem(gang: GangPlace, kind: str, public_key: str) -> str:
    """What is wrong with it; empty when nothing is."""
    if gang.overlay != kind:
        return f"the assignment asks for {gang.overlay or 'none'}, this node offers {kind}"
    if [member.rank for member in gang.members] != list(range(gang.nodes)) or gang.node_rank >= gang.nodes:
        return f"the assignment does not name {gang.nodes} members by rank"
    if gang.members[gang.node_rank].public_key != public_key:
        return "the assignment knows this node by another key"
    return _wrong_address(gang) or _repeated(gang)


def _not_ours(gang: GangPlace, address: str) -> str:
    """The provider opens gangs' ports, at one address: no assignment shuts another one of the node's to the world."""
    me = gang.members[gang.node_rank]
    if ip_address(me.address) != ip_address(address):
        return f"the assignment has {me.address} for this node's fabric address {address}"
    wrong = [member.port for member in gang.members if member.port not in PORTS]
    return f"port {wrong[0]} is not from {PORTS.start} to {PORTS.stop - 1}" if wrong else ""


def _wrong_address(gang: GangPlace) -> str:
    scoped = [member.address for member in gang.members if "%" in member.address]  # after it anything may stand
    if scoped:
        return f"{scoped[0]!r} is no plain IP address"
    try:
        outer = [ip_address(member.address) for member in gang.members]
        inner = [IPv4Address(member.overlay_address) for member in gang.members]
    except ValueError as error:
        return str(error)
    if nobodys := [str(address) for address in outer if _is_nobodys(address)]:
        return f"{nobodys[0]} is no address of another node"
    if len({address.version for address in outer}) > 1:
        return "some members have IPv4 addresses, others IPv6"
    if not all(address in GANG_NETWORK for address in inner):
        return f"an overlay address lies outside of {GANG_NETWORK}"
    return "" if gang.master_address == str(inner[0]) else "the master's address is not that of rank 0"


def _is_nobodys(address: IPv4Address | IPv6Address) -> bool:
    """Many nodes', each node's own, or one that rules and sockets understand differently (::ffff:192.0.2.1)."""
    is_special = address.is_unspecified or address.is_loopback or address.is_multicast
    is_broadcast = address.version == 4 and address.is_reserved
    return is_special or is_broadcast or getattr(address, "ipv4_mapped", None) is not None


def _repeated(gang: GangPlace) -> str:
    for what, values in (
        ("key", [member.public_key for member in gang.members]),
        ("overlay address", [member.overlay_address for member in gang.members]),
        ("address and port", [(ip_address(member.address), member.port) for member in gang.members]),
    ):
        if len(set(values)) < len(values):
            return f"two members have the same {what}"
    return ""
