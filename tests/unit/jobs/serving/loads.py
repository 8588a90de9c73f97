"""Builders of what the deciding functions take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from jobs.scaling.autoscaling import EndpointView, ReplicaView
from jobs.scaling.forecast import Minute
from jobs.spec.kinds.serve import ServeSection

MONDAY = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def policy(*, least: int = 1, most: int = 10, spread: str = "provider", **scale: Any) -> ServeSection:
    """A job file's serve section."""
    return ServeSection.model_validate(
        {
            "model": {"hub": "org/model"},
            "replicas": {"min": least, "max": most},
            "scale": {"in_flight": 8, "forecast": False, **scale},
            "spread": spread,
        }
    )


def replica(number: int, state: str = "ready", seconds: float = 1000.0, **more: Any) -> ReplicaView:
    """The replica of this number."""
    return ReplicaView(UUID(int=number), state, seconds, **more)


def replicas(ready: int = 0, starting: int = 0, draining: int = 0) -> list[ReplicaView]:
    """So many of each state."""
    states = ["ready"] * ready + ["starting"] * starting + ["draining"] * draining
    return [replica(number, state, 1000.0 if state == "ready" else 1.0) for number, state in enumerate(states, 1)]


def view(ready: int = 0, starting: int = 0, draining: int = 0, **more: Any) -> EndpointView:
    """An endpoint with so many replicas, whose last request was a second ago."""
    return EndpointView(replicas(ready, starting, draining), **{"idle_seconds": 1.0, **more})


def minute(at: datetime, ago: int = 0, **more: Any) -> Minute:
    """The minute so many before `at`."""
    return Minute(int((at - timedelta(minutes=ago)).timestamp()) // 60, **{"ticks": 1, **more})
