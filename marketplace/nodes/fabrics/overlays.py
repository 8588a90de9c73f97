"""How the programs of a node can reach those of others, by what its agent reported."""

from __future__ import annotations

from provider_agent.protocol import GangKind, OverlayKind

KINDS: tuple[GangKind, ...] = ("none", "address", "plain", "wireguard")
OVERLAYS: tuple[OverlayKind, ...] = ("plain", "wireguard")


def gang_kind(executor: str, reported: str, key: str) -> GangKind:
    """Older agents report nothing: their processes use the node's address, their containers reach no other node.

    An agent that reports an overlay and no key for it has none: the members of its gang could not be sent the key.
    """
    if reported in OVERLAYS and not key:
        return "none"
    for kind in KINDS:
        if kind == reported:
            return kind
    return "address" if executor == "process" else "none"


def gang_label(fabric: str, executor: str, reported: str, key: str) -> str:
    """Nodes with the same label can be of one gang: of one fabric, and connected in the same way. Empty: of none."""
    kind = gang_kind(executor, reported, key)
    return "" if not fabric or kind == "none" else f"{fabric}/{kind}"
