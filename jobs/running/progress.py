"""How far a job is, by the events of its program: a view of what is stored."""

from __future__ import annotations

import math
from typing import Any

from jobs.running.preparing import advance_preparing
from runtimes.contract import EventKind, read_preparing

_PROGRESS_KINDS = frozenset(
    {EventKind.STARTED, EventKind.RESUMED, EventKind.STEP, EventKind.EVALUATED, EventKind.STOPPED_EARLY}
)
_AFTER_PREPARING = frozenset({EventKind.STARTED, EventKind.RESUMED, EventKind.STEP})
_STEP_FIELDS = ("step", "loss", "tokens", "tokens_per_second", "seconds")


def advance_progress(progress: dict[str, Any], attempt: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The progress after these events of an attempt; an older attempt's late events change nothing."""
    if attempt < progress.get("attempt", 0):
        return progress
    result = {**progress, "attempt": attempt}
    if attempt > progress.get("attempt", 0):
        # It goes on from its checkpoint, which may lie behind where the last one came, and which it has yet to load.
        result = {name: value for name, value in result.items() if name not in ("step", "resumed_from", "preparing")}
    for event in events:
        step = event.get("step")
        kind = event["event"]
        if kind in _AFTER_PREPARING:
            result.pop("preparing", None)
        if kind == EventKind.PREPARING:
            fields = {name: value for name, value in event.items() if name != "event"}
            result["preparing"] = advance_preparing(result.get("preparing"), fields)
        elif kind == EventKind.STARTED and isinstance(event.get("steps_total"), int):
            result["steps_total"] = event["steps_total"]
        elif kind == EventKind.RESUMED and isinstance(step, int):
            result["resumed_from"] = step
            if result.get("step", 0) > step:  # another generation of the gang
                del result["step"]
        elif kind == EventKind.STOPPED_EARLY and isinstance(step, int) and step >= result.get("step", 0):
            result["steps_total"] = step  # it is at its end: nothing is left to do
        elif kind == EventKind.EVALUATED and "loss" in event:
            result["eval_loss"] = event["loss"]
        elif kind == EventKind.STEP and isinstance(step, int) and step >= result.get("step", 0):
            result |= {name: event[name] for name in _STEP_FIELDS if name in event}
    return result


def read_progress(event: dict[str, Any]) -> dict[str, Any] | None:
    """What of an event shows in the progress; None for one that does not. A customer's program may write anything."""
    if (preparing := read_preparing(event)) is not None:
        return {**preparing, "event": EventKind.PREPARING}
    if str(event.get("event")) not in _PROGRESS_KINDS:
        return None
    # Only numbers that PostgreSQL's JSON can hold: no NaN, no infinity, nothing that a program made up.
    numbers = {name: value for name, value in event.items() if _is_storable(value)}
    return {**numbers, "event": event["event"]}


def _is_storable(value: object) -> bool:
    return (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
