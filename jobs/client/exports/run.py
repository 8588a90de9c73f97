"""What is exported: a job, and the points of its curve by their steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from jobs.wire import JobCurve


@dataclass(frozen=True)
class Run:
    """One job's curve. A point counts at its last step, with the mean of its steps."""

    job_id: UUID
    name: str
    curve: JobCurve

    def scalars(self) -> Iterator[tuple[str, int, float]]:
        """Series, step and figure of each point, series by series, steps in order."""
        for series in self.curve.series:
            for point in series.points:
                yield tag(series.name), point.last_step, point.mean

    def by_step(self) -> list[tuple[int, dict[str, float]]]:
        """The figures of each step that has any, steps in order."""
        found: dict[int, dict[str, float]] = {}
        for name, step, value in self.scalars():
            found.setdefault(step, {})[name] = value
        return sorted(found.items())


def tag(name: str) -> str:
    """A series' name with its groups (`reward/mean`), but none that leads out of a folder (`a/../b`): one tool has a
    file for each."""
    return "/".join(part for part in name.split("/") if part.strip(".")) or "_"
