"""Reports work before the first step: `preparing` events, as long as long work moves, and `prepared` at its end."""

from __future__ import annotations

from typing import Any

from runtimes.contract import PREPARING_EVERY_SECONDS, PREPARING_FIRST_SECONDS, PREPARING_WORKS, EventKind, EventWriter


class PreparingReport:
    """The events of one long work. Times are seconds since it began, by this process's clock.

    The agent takes the first one for the first healthy sign, from which on the customer pays. So none is written in
    the first PREPARING_FIRST_SECONDS, and never one where nothing has moved since the one before.
    """

    def __init__(self, events: EventWriter, what: str) -> None:
        self._events = events
        self._what = what
        self._due = PREPARING_FIRST_SECONDS
        self._moves = 0

    def update(
        self, seconds: float, *, moves: int, done: float | None = None, total: float | None = None, unit: str = ""
    ) -> bool:
        """Write an event if one is due and something has moved; returns whether one was written.

        `moves`: how often anything has moved since the work began, on all ranks. `done`, `total`: how much of the work
        is done, in `unit`, where that is known.
        """
        if self._what not in PREPARING_WORKS or seconds < self._due or moves == self._moves:
            return False
        self._due, self._moves = seconds + PREPARING_EVERY_SECONDS, moves
        amounts: dict[str, Any] = {"done": done, "total": total, "unit": unit or None} if done is not None else {}
        known = {name: value for name, value in amounts.items() if value is not None}
        self._events.write(EventKind.PREPARING, what=self._what, seconds=round(seconds, 1), **known)
        return True


def report_prepared(events: EventWriter, what: str, seconds: float, *, found: bool) -> None:
    """Write that a work is done; `found`: by an earlier training or attempt, whose entry was used."""
    events.write(EventKind.PREPARED, what=what, seconds=round(seconds, 1), found=found)
