"""/api/v1/jobs/{id}/logs and events"""

from __future__ import annotations

from typing import ClassVar, Final, TypedDict
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, find_job, read_query
from jobs.api.schemas import STREAM, StreamQuery, errors
from jobs.models import Stream
from jobs.running.stream_polls import begin_poll
from jobs.running.streams import read_stream
from jobs.wire import StreamPage
from marketplace.accounts.permissions import HasScope

# Set by a web server that holds whoever waits itself; without it the view waits, and takes a thread for it.
HOLDS_POLLS: Final = "souk.holds_polls"


class _Place(TypedDict):
    attempt: int | None
    node_rank: int


class StreamView(APIView):
    """One node's stream of one attempt, by offset."""

    permission_classes = [HasScope("jobs:read")]
    stream: ClassVar[Stream]

    def get(self, request: Request, job_id: UUID) -> Response:
        query = read_query(request, StreamQuery)
        job = find_job(request, job_id)
        place: _Place = {"attempt": query.attempt, "node_rank": query.node_rank}
        if not request.META.get(HOLDS_POLLS):
            page = read_stream(job, self.stream, offset=query.offset, wait_seconds=query.wait_seconds, **place)
            return answer(page)
        poll = begin_poll(job, self.stream, wait_seconds=query.wait_seconds, **place)
        page = read_stream(job, self.stream, offset=query.offset, **place)
        response = answer(page)
        if poll is not None and not page.text and not page.is_complete:
            response.poll = poll  # type: ignore[attr-defined]  # the web server asks again when there is something new
        return response


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
