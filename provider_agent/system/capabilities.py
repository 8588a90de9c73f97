"""What of root's power the agent needs for containers. Its unit gives it this and no more; the checks ask for it.

Standard library only: preflight runs out of the wheel.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Each with what fails without it; tests/contracts/executors/gangs/test_unit.py takes each away and sees that.
NEEDED: Final = {
    "CAP_CHOWN": "a job's files are given to its container's user",
    "CAP_DAC_OVERRIDE": "what that user wrote for nobody else is read and sent",
    "CAP_FOWNER": "folders with the sticky bit that a job left are removed",
    "CAP_SYS_ADMIN": "a lease's disk is mounted; a container's network is entered",
    "CAP_SYS_PTRACE": "which network a container has is seen: its process is another user's",
    "CAP_NET_ADMIN": "rules and interfaces: iptables, ip, wireguard-go",
    "CAP_NET_RAW": "iptables of the older kind, which asks the kernel through a raw socket",
}
# Bits of <linux/capability.h>.
BITS: Final = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
}
FOR_DISKS: Final = ("CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_CHOWN")
FOR_EGRESS: Final = ("CAP_NET_ADMIN",)
FOR_GANGS: Final = ("CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE")
STATUS: Final = Path("/proc/self/status")


def lacking(names: Iterable[str]) -> list[str]:
    """Those that this process has not in force; in a container, or under a unit, root may lack some too."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    effective = int(lines["CapEff"], 16)
    return [name for name in names if not effective >> BITS[name] & 1]
