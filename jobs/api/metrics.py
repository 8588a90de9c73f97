"""/api/v1/jobs/{id}/metrics, /curve"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, find_job, read_query
from jobs.api.schemas import errors
from jobs.models import Job, Lease
from jobs.running.curves import read_curve
from jobs.wire import JobCurve, JobMetrics, MetricsPoint
from marketplace.accounts.permissions import HasScope
from marketplace.foundation import clock
from marketplace.nodes.watching import metrics
from provider_agent.protocol import Moment

LEASES_MAX = 64  # the newest
SINCE = OpenApiParameter("since", OpenApiTypes.DATETIME, description="Six hours ago, where it is left out.")


class MetricsQuery(BaseModel):
    """From when on; six hours ago, unless given."""

    model_config = ConfigDict(extra="forbid")
    since: Moment | None = None


class JobMetricsView(APIView):
    """What the job's nodes measured of its programs: processor, memory, GPUs."""

    permission_classes = [HasScope("jobs:read")]

    @extend_schema(operation_id="job_metrics", parameters=[SINCE], responses={200: JobMetrics, **errors(400, 404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Oldest first, node by node. They are the nodes' own words: nothing is billed by them."""
        since = read_query(request, MetricsQuery).since or clock.now() - metrics.MINUTES_KEPT
        return answer(JobMetrics(points=_points(find_job(request, job_id), since)))


class JobCurveView(APIView):
    """What the job's program reported of its training, step by step."""

    permission_classes = [HasScope("jobs:read")]

    @extend_schema(operation_id="job_curve", responses={200: JobCurve, **errors(404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Of the whole run, in at most 1,000 points a series: the program's own words, by which nothing is billed.

        Where an attempt went on from a checkpoint, the points of later steps are the newer attempt's.
        """
        return answer(read_curve(find_job(request, job_id).pk))


def _points(job: Job, since: datetime) -> list[MetricsPoint]:
    leases = Lease.objects.filter(attempt__job=job).select_related("attempt").order_by("-fence")[:LEASES_MAX]
    return [
        MetricsPoint(
            lease_id=lease.id,
            attempt=lease.attempt.number,
            node_rank=lease.node_rank,
            at=row.at,
            seconds=row.seconds,
            values=row.values,
        )
        for lease in reversed(leases)
        for row in metrics.read(lease.node_id, lease.id, since=since)
    ]
