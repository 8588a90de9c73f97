"""/api/v1/jobs/{id}/logs and events"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, find_job, read_query
from jobs.api.schemas import STREAM, StreamQuery, errors
from jobs.models import Stream
from jobs.running.streams import read_stream
from jobs.wire import StreamPage
from marketplace.accounts.permissions import HasScope


class StreamView(APIView):
    """One node's stream of one attempt, by offset."""

    permission_classes = [HasScope("jobs:read")]
    stream: ClassVar[Stream]

    def get(self, request: Request, job_id: UUID) -> Response:
        query = read_query(request, StreamQuery)
        page = read_stream(
            find_job(request, job_id),
            self.stream,
            attempt=query.attempt,
            node_rank=query.node_rank,
            offset=query.offset,
            wait_seconds=query.wait_seconds,
        )
        return answer(page)


@extend_schema_view(
    get=extend_schema(
        operation_id="job_logs",
        description="What the job printed, from an offset.",
        parameters=STREAM,
        responses={200: StreamPage, **errors(400, 404)},
    )
)
class LogsView(StreamView):
    stream = Stream.LOG


@extend_schema_view(
    get=extend_schema(
        operation_id="job_events",
        description="What the job reported as JSON lines (`runtimes/contract.py`), from an offset.",
        parameters=STREAM,
        responses={200: StreamPage, **errors(400, 404)},
    )
)
class EventsView(StreamView):
    stream = Stream.EVENT
