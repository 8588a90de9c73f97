"""How much of the node's memory its leases share."""

from __future__ import annotations

import psutil

from provider_agent.protocol import leases_memory_mib

MIB = 1024**2


def memory_for_leases_mib() -> int:
    """MiB for the leases of all devices together, as the marketplace reckons it, too."""
    return leases_memory_mib(int(psutil.virtual_memory().total) // MIB)
