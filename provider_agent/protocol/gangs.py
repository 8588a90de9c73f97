"""A gang: the nodes of one attempt, and how their programs reach each other.

With `overlay` the programs have a network of their own, which nothing but the gang is on: each member is known by its
node's address and public key, and its program by an overlay address. Without it (the process executor, and agents from
before) they use their nodes' own addresses in the fabric.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from provider_agent.protocol.message import Message

GANG_NETWORK: Final = IPv4Network("10.83.0.0/16")  # of the programs; every gang has all of it, unseen by the others
GANG_PORT_FIRST, GANG_PORTS = 29_500, 2_000  # below the ports that Linux gives to outgoing connections

OverlayKind = Literal["plain", "wireguard"]
# How a node's programs reach their gang: not at all, by the node's own address, or by an overlay; "": not reported.
GangKind = Literal["", "none", "address", "plain", "wireguard"]


class GangMember(Message):
    """One node of a gang as the others see it."""

    rank: int = Field(ge=0)
    address: str = Field(max_length=64)  # the node's own, in the fabric
    port: int = Field(gt=0, lt=65536)  # UDP, there
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")  # X25519
    overlay_address: str = Field(max_length=15)  # of its program


class GangPlace(Message):
    """This node's place among the nodes of the attempt."""

    nodes: int = Field(default=1, ge=1)
    node_rank: int = Field(default=0, ge=0)
    devices_per_node: int = Field(default=1, ge=1)
    master_address: str = "127.0.0.1"
    master_port: int = Field(default=29500, gt=0, lt=65536)
    overlay: Literal["", "plain", "wireguard"] = ""
    members: list[GangMember] = Field(default_factory=list)  # by rank; empty without an overlay

    @model_serializer(mode="wrap")
    def _without_overlay(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Agents from before know no overlay and would refuse the words; only those that offered one are sent them."""
        fields: dict[str, Any] = handler(self)
        if not self.overlay:
            fields.pop("overlay", None)
            fields.pop("members", None)
        return fields


def gang_address(rank: int) -> str:
    """The overlay address of the program of this rank; raises IndexError beyond the network's size."""
    if rank + 1 >= GANG_NETWORK.num_addresses - 1:
        raise IndexError(f"a gang has no rank {rank}")
    return str(GANG_NETWORK[rank + 1])
