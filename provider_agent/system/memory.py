"""How much of the node's memory its leases share."""

from __future__ import annotations

import psutil

RESERVE_MIB = 2048  # left to the agent and the container engine
MIB = 1024**2


def memory_for_leases_mib() -> int:
    """MiB for the leases of all devices together; of a small node a quarter is kept back, not RESERVE_MIB."""
    total = int(psutil.virtual_memory().total) // MIB
    return total - min(RESERVE_MIB, total // 4)
