"""What an Xid event means for a GPU: an application's error, a note, or broken hardware.

Numbers and names: NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/). Which of them leave the GPU usable
follows NVIDIA's own device plugin for Kubernetes (https://github.com/NVIDIA/k8s-device-plugin, internal/rm): what is
not known to be harmless is taken for broken hardware.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class XidKind(StrEnum):
    """application: a program did it. note: nothing is lost. hardware: the device leaves the market."""

    APPLICATION = "application"
    NOTE = "note"
    HARDWARE = "hardware"


class Xid(NamedTuple):
    """One row of the table."""

    kind: XidKind
    name: str


_A, _N, _H = XidKind.APPLICATION, XidKind.NOTE, XidKind.HARDWARE
XIDS: Final = {
    8: Xid(_A, "GPU stopped processing"),
    11: Xid(_A, "invalid or corrupted push buffer stream"),
    13: Xid(_A, "graphics engine exception"),
    31: Xid(_A, "GPU memory page fault"),
    43: Xid(_A, "GPU stopped processing"),
    45: Xid(_A, "preemptive cleanup, due to previous errors"),
    68: Xid(_A, "video processor exception"),
    94: Xid(_A, "contained memory error"),
    109: Xid(_A, "context switch timeout"),
    63: Xid(_N, "row remapping or page retirement recorded"),
    48: Xid(_H, "double bit memory error"),
    61: Xid(_H, "internal microcontroller breakpoint"),
    62: Xid(_H, "internal microcontroller halt"),
    64: Xid(_H, "row remapping or page retirement failed"),
    69: Xid(_H, "graphics engine class error"),
    74: Xid(_H, "NVLink error"),
    79: Xid(_H, "GPU has fallen off the bus"),
    92: Xid(_H, "high rate of single bit memory errors"),
    95: Xid(_H, "uncontained memory error"),
    119: Xid(_H, "no answer of the GPU system processor"),
    120: Xid(_H, "error of the GPU system processor"),
    140: Xid(_H, "unrecovered memory error"),
}
UNKNOWN: Final = Xid(_H, "not in this agent's table")


def xid_of(number: int) -> Xid:
    """Its row; an Xid without a row is taken for broken hardware."""
    return XIDS.get(number, UNKNOWN)
