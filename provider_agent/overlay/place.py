"""A gang's network as one lease sees it: from the signed assignment, checked before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Any, Final
from uuid import UUID

from provider_agent.errors import ExecutorFailed
from provider_agent.protocol import GANG_NETWORK, Assignment, GangMember, GangPlace

INTERFACE: Final = "souk0"  # as the program sees it
NAME_PREFIX: Final = "soukg"  # as the node sees it, while it is being made
NAME_HEX: Final = 10  # an interface's name has 15 characters at most


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


def overlay_of(assignment: Assignment, *, kind: str, public_key: str) -> Overlay:
    """The overlay of an assignment to a gang, for a node that offers `kind` and is known by `public_key`.

    Raises ExecutorFailed that says what does not fit; nothing was made then.
    """
    gang = assignment.gang
    if problem := _problem(gang, kind, public_key):
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


def _wrong_address(gang: GangPlace) -> str:
    scoped = [member.address for member in gang.members if "%" in member.address]  # after it anything may stand
    if scoped:
        return f"{scoped[0]!r} is no plain IP address"
    try:
        versions = {ip_address(member.address).version for member in gang.members}
        inner = [IPv4Address(member.overlay_address) for member in gang.members]
    except ValueError as error:
        return str(error)
    if len(versions) > 1:
        return "some members have IPv4 addresses, others IPv6"
    if not all(address in GANG_NETWORK for address in inner):
        return f"an overlay address lies outside of {GANG_NETWORK}"
    return "" if gang.master_address == str(inner[0]) else "the master's address is not that of rank 0"


def _repeated(gang: GangPlace) -> str:
    for what, values in (
        ("key", [member.public_key for member in gang.members]),
        ("overlay address", [member.overlay_address for member in gang.members]),
        ("address and port", [(member.address, member.port) for member in gang.members]),
    ):
        if len(set(values)) < len(values):
            return f"two members have the same {what}"
    return ""
