"""What can be expected of a node, from what happened: four parts between 0 and 1, and their weighted mean.

    uptime         share of the last 30 days in which it was there when it should have been
    attempts       jobs that did not fail by its fault: (successes + 1) / (all + 2)
    verification   checks passed: (passed + 1) / (all + 2); after failures in a row, halved for each
    age            days since it enrolled, full after 30

The two that count are Laplace's rule of succession: a node without a history has one half, neither good nor bad.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState

WINDOW: Final = timedelta(days=30)
WEIGHTS: Final = {"uptime": 0.3, "attempts": 0.35, "verification": 0.25, "age": 0.1}
THERE: Final = frozenset({NodeState.ONLINE, NodeState.DRAINING})
EVENTS_MAX: Final = 5000  # of the newest; a node that flaps more often than that has its uptime judged by these
HALVINGS_MAX: Final = 10


@dataclass(frozen=True)
class Part:
    """One part of a reputation, with what it comes from in words."""

    name: str
    value: float
    weight: float
    because: str


@dataclass(frozen=True)
class Reputation:
    """The score and its parts."""

    score: float
    parts: tuple[Part, ...]


def reputation_of(node: Node) -> Reputation:
    """Computed from the node's row and its events; nothing is stored."""
    now = clock.now()
    uptime, seconds = _uptime(node, now)
    attempts, checks = node.successes + node.failures, node.checks_passed + node.checks_failed
    verified = (node.checks_passed + 1) / (checks + 2) / 2 ** min(node.checks_failed_in_row, HALVINGS_MAX)
    values = {
        "uptime": (uptime, f"there for {uptime:.1%} of the last {seconds / 86400:.1f} days"),
        "attempts": (
            (node.successes + 1) / (attempts + 2),
            f"{node.failures} of {attempts} attempts failed by its fault",
        ),
        "verification": (verified, _checks_in_words(node, checks)),
        "age": (min((now - node.enrolled_at) / WINDOW, 1.0), f"enrolled {(now - node.enrolled_at).days} days ago"),
    }
    parts = tuple(Part(name, round(value, 4), WEIGHTS[name], because) for name, (value, because) in values.items())
    return Reputation(round(sum(part.value * part.weight for part in parts), 4), parts)


def _checks_in_words(node: Node, checks: int) -> str:
    in_row = f", the last {node.checks_failed_in_row} in a row" if node.checks_failed_in_row else ""
    return f"{node.checks_failed} of {checks} checks failed{in_row}"


def _uptime(node: Node, now: datetime) -> tuple[float, float]:
    """The share of the time since it first came online, within the window, and how long that is in seconds."""
    events = Event.objects.filter(subject_kind="node", subject_id=node.pk).order_by("-id")[:EVENTS_MAX]
    moves = [(event.created_at, event.to_state) for event in reversed(events)]
    began = next((at for at, state in moves if state == NodeState.ONLINE), None)
    if began is None:
        return 0.0, 0.0
    start = max(began, now - WINDOW)
    ends = [at for at, _ in moves[1:]] + [now]
    there = sum(
        (max(end, start) - max(at, start)).total_seconds()
        for (at, state), end in zip(moves, ends, strict=True)
        if state in THERE
    )
    seconds = max((now - start).total_seconds(), 1e-3)
    return min(there / seconds, 1.0), seconds
