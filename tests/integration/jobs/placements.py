"""The placement of one job on one node, as matching would make it."""

from __future__ import annotations

from jobs.matching import fleet
from jobs.matching.match import match
from jobs.models import Job
from jobs.placing import placement


def placement_for(job: Job):
    """Where the matcher would put this job if it were the only one."""
    request = placement.request_of(job)
    return match([request], fleet.take_snapshot()).placements[str(job.id)]
