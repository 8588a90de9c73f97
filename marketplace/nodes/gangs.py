"""How the programs of a node can reach those of others, by what its agent said."""

from __future__ import annotations

from provider_agent.protocol import GangKind, OverlayKind

KINDS: tuple[GangKind, ...] = ("none", "address", "plain", "wireguard")
OVERLAYS: tuple[OverlayKind, ...] = ("plain", "wireguard")


def gang_kind(executor: str, said: str, key: str) -> GangKind:
    """Agents from before say nothing: their processes use the node's address, their containers reach nobody.

    Who says that it has an overlay and names no key for it has none: its gang's members could not be told of it.
    """
    if said in OVERLAYS and not key:
        return "none"
    for kind in KINDS:
        if kind == said:
            return kind
    return "address" if executor == "process" else "none"


def gang_label(fabric: str, executor: str, said: str, key: str) -> str:
    """Nodes with the same label can be of one gang: of one fabric, and of one way to meet. Empty: of none."""
    kind = gang_kind(executor, said, key)
    return "" if not fabric or kind == "none" else f"{fabric}/{kind}"
