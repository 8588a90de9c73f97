"""Counts the programs in a row that failed, for which this node may be to blame; enough of them start a self-test."""

from __future__ import annotations

import asyncio

from provider_agent.protocol import Reason

FAILURES_IN_A_ROW_MAX = 3
# Endings that say something about the node. A stop, an image or an input that is not available, a network: do not.
SUSPICIOUS = frozenset(
    {
        Reason.EXIT_NONZERO,
        Reason.BAD_CONFIG,
        Reason.BAD_INPUT,
        Reason.BAD_CHECKPOINT,
        Reason.OUT_OF_MEMORY,
        Reason.PROCESS_VANISHED,
        Reason.EXECUTOR_FAILED,
        Reason.DISK_FULL,
        Reason.DEVICE_FAILED,
        Reason.INTERNAL,
    }
)


class FailureCount:
    """Endings in a row for which the node may be to blame."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.reached = asyncio.Event()

    def note(self, reason: Reason) -> None:
        """Count one more program that ended; a completed one starts the count again."""
        if reason is Reason.COMPLETED:
            self.in_a_row = 0
        elif reason in SUSPICIOUS:
            self.in_a_row += 1
            if self.in_a_row >= FAILURES_IN_A_ROW_MAX:
                self.reached.set()

    def clear(self) -> None:
        """Start the count again."""
        self.in_a_row = 0
        self.reached.clear()
