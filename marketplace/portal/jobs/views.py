"""/jobs: the list, the page of one job, and what its nodes printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from django.db import connection
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from pydantic import ValidationError
from rest_framework.request import Request

from jobs.api.job_views import list_jobs
from jobs.api.schemas import StreamQuery
from jobs.errors import JobNotFound
from jobs.models import Job, Lease, Stream
from jobs.models.querysets import LeaseQuerySet
from jobs.running.streams import STREAM_BYTES_MAX, read_stream
from jobs.wire import StreamPage
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.pagination import NewestFirst
from marketplace.portal.jobs.listing import KIND_NAMES, STATES, Question, read_question
from marketplace.portal.jobs.showing import BAR_LENGTH, shown
from marketplace.portal.visitors import Visitor, organisation_of, page

SEE: Final = "seeing an organisation's jobs"
LOG_BYTES_SHOWN: Final = 64 * 1024  # of the end; the rest is a link away
LOGS_OFFERED_MAX: Final = 200  # attempts times nodes, the newest
_BAD_LOG: Final = "This log can be asked for attempt, node_rank and offset, each a whole number."


@page("GET")
def jobs_page(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Newest first, fifty a page; a question that has no answer gets a sentence, and 400."""
    organisation = organisation_of(visitor, Scope.JOBS_READ, SEE)
    context: dict[str, Any] = {"visitor": visitor, "states": STATES, "kinds": KIND_NAMES, "asked": Question()}
    try:
        question = read_question(request.GET)
        paginator = NewestFirst()
        rows = paginator.paginate_queryset(question.rows(organisation), Request(request)) or []
    except BadRequest as error:
        return render(request, "portal/jobs/jobs.html", context | {"error": error}, status=400)
    context |= {
        "asked": question,
        "jobs": list_jobs(rows),
        "newer": _query_of(paginator.get_previous_link()),
        "older": _query_of(paginator.get_next_link()),
    }
    return render(request, "portal/jobs/jobs.html", context)


@page("GET")
def job_page(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """One job: what it does and costs now, its attempts, the end of its log, and its job file."""
    job = find_job(visitor, job_id)
    context = {"visitor": visitor, "job": shown(job), "bar_length": BAR_LENGTH} | _log_of(job, request.GET)
    context["may_change"] = visitor.may(Scope.JOBS_WRITE)
    return render(request, "portal/jobs/job.html", context)


@page("GET")
def job_now(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """The part of that page that changes; all of it, where what may be done to the job has changed."""
    job = shown(find_job(visitor, job_id))
    response = render(request, "portal/jobs/now.html", {"visitor": visitor, "job": job, "bar_length": BAR_LENGTH})
    if request.GET.get("phase", job.phase) != job.phase:
        response.headers["HX-Refresh"] = "true"
    return response


@page("GET")
def job_log(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """What one node printed since `offset`, and the request for what comes after it."""
    job, query = find_job(visitor, job_id), _log_query(request.GET)
    piece = read_stream(job, Stream.LOG, attempt=query.attempt, node_rank=query.node_rank, offset=query.offset)
    return render(request, "portal/jobs/log_piece.html", {"job_id": job.pk, "piece": piece})


@page("GET")
def job_log_text(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """All that one node printed so far, as a file."""
    job, query = find_job(visitor, job_id), _log_query(request.GET)
    first = read_stream(job, Stream.LOG, attempt=query.attempt, node_rank=query.node_rank)
    name = f"souk-{job.pk}-attempt-{first.attempt}-node-{first.node_rank}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(_whole(job, first), content_type="text/plain; charset=utf-8", headers=headers)


def find_job(visitor: Visitor, job_id: UUID) -> Job:
    """A job of the organisation in whose name the visitor acts. Raises Forbidden, JobNotFound."""
    organisation = organisation_of(visitor, Scope.JOBS_READ, SEE)
    job = Job.objects.of(organisation).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound()
    return job


def _query_of(link: str | None) -> str:
    return urlsplit(link).query if link else ""


def _log_query(given: QueryDict) -> StreamQuery:
    try:
        return StreamQuery.model_validate(given.dict())
    except ValidationError:
        raise BadRequest(_BAD_LOG) from None


def _log_of(job: Job, given: QueryDict) -> dict[str, Any]:
    """The end of the chosen node's log, of the newest attempt unless another is asked for."""
    query = _log_query(given)
    leases = Lease.objects.filter(attempt__job=job)
    places = leases.values_list("attempt__number", "node_rank").distinct().order_by("-attempt__number", "node_rank")
    number = query.attempt if query.attempt is not None else places.values_list("attempt__number", flat=True).first()
    begin = query.offset or max(0, _stored(leases, number, query.node_rank) - LOG_BYTES_SHOWN)
    piece = read_stream(job, Stream.LOG, attempt=number, node_rank=query.node_rank, offset=begin)
    _, line_end, after = piece.text.partition("\n")
    is_cut = begin and not query.offset and line_end
    return {
        "places": list(places[:LOGS_OFFERED_MAX]),
        "piece": piece.model_copy(update={"text": after if is_cut else piece.text}),
        "job_id": job.pk,
        "log_begins_at": begin,
    }


def _stored(leases: LeaseQuerySet, attempt: int | None, node_rank: int) -> int:
    """Bytes of one node's log: of each lease at most as many as are kept."""
    if attempt is None:
        return 0
    sizes = leases.filter(attempt__number=attempt, node_rank=node_rank).values_list("log_bytes", flat=True)
    return sum(min(size, STREAM_BYTES_MAX) for size in sizes)


def _whole(job: Job, page: StreamPage) -> Iterator[str]:
    while page.next_offset > page.offset:  # a piece of control characters alone is no text, and not the end
        if not connection.in_atomic_block:
            connection.close()  # back to the pool: a slow reader must not keep others from the database
        yield page.text
        page = read_stream(job, Stream.LOG, attempt=page.attempt, node_rank=page.node_rank, offset=page.next_offset)
