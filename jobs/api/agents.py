"""The agents' appends: logs, events, receipts, artifacts of a lease. Every call is signed, and harmless to repeat.

Plain views: a body is bytes here, read once, within a limit, before anything else is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from pydantic import BaseModel

from jobs import lifecycle
from jobs.artifacts import downloads, prepared, uploads
from jobs.bills import earnings
from jobs.endpoints import usage_statements
from jobs.errors import ArtifactNotFound, BodyTooLarge
from jobs.kinds.registry import kind_of
from jobs.leases.fencing import require_fence, require_lease
from jobs.models import Artifact, Attempt, Lease, Stream
from jobs.results import results_of
from jobs.running import receipts, reports, streams
from jobs.states import LEASE_LIVE
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.parsers import read_message
from marketplace.nodes.agent_auth import authenticate_agent
from provider_agent.protocol import (
    APPEND_BYTES_MAX,
    ATTEMPT_ENDS,
    AppendResponse,
    ArtifactBegin,
    ArtifactComplete,
    ReceiptAck,
    ReceiptAppend,
)
from provider_agent.protocol.money.usage_statements import SignedStatement, StatementAck

RECEIPTS_BODY_BYTES_MAX = 256 * 1024
MANIFEST_BODY_BYTES_MAX = 24 * 1024 * 1024  # 20,000 files with long names, or their ETags
NUMBER_DIGITS_MAX = 18

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def for_lease(
    bytes_max: int,
) -> Callable[[Callable[Concatenate[HttpRequest, Lease, bytes, P], HttpResponse]], View[...]]:
    """The view gets the lease of the node that signed the request, and the body; any other lease is not found."""

    def decorate(view: Callable[Concatenate[HttpRequest, Lease, bytes, P], HttpResponse]) -> View[...]:
        @csrf_exempt
        @wraps(view)
        def wrapped(request: HttpRequest, lease_id: UUID, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            body = _read_body(request, bytes_max)
            node = authenticate_agent(request.method or "", request.get_full_path(), request.headers, body)
            return view(request, require_lease(node, lease_id), body, *args, **kwargs)

        return wrapped

    return decorate


@require_POST
@for_lease(APPEND_BYTES_MAX)
def append_log(request: HttpRequest, lease: Lease, body: bytes) -> HttpResponse:
    """POST leases/{lease_id}/logs?offset=&fence="""
    return _append(request, lease, Stream.LOG, body)


@require_POST
@for_lease(APPEND_BYTES_MAX)
def append_events(request: HttpRequest, lease: Lease, body: bytes) -> HttpResponse:
    """POST leases/{lease_id}/events?offset=&fence="""
    return _append(request, lease, Stream.EVENT, body)


@require_POST
@for_lease(RECEIPTS_BODY_BYTES_MAX)
def append_receipts(request: HttpRequest, lease: Lease, body: bytes) -> HttpResponse:
    """POST leases/{lease_id}/receipts?fence="""
    message = read_message(ReceiptAppend, body)
    require_fence(lease, _number(request, "fence"))
    seq = receipts.accept(lease, message.receipts)
    _conclude(lease)
    return _answer(ReceiptAck(seq=seq))


@require_POST
@for_lease(RECEIPTS_BODY_BYTES_MAX)
def append_statement(request: HttpRequest, lease: Lease, body: bytes) -> HttpResponse:
    """POST leases/{lease_id}/statement?fence="""
    message = read_message(SignedStatement, body)
    require_fence(lease, _number(request, "fence"))
    return _answer(StatementAck(seq=usage_statements.accept(lease, message)))


@require_POST
@for_lease(MANIFEST_BODY_BYTES_MAX)
def begin_artifact(request: HttpRequest, lease: Lease, body: bytes) -> HttpResponse:
    """POST leases/{lease_id}/artifacts?fence="""
    message = read_message(ArtifactBegin, body)
    return _answer(uploads.begin(lease, message, fence=_number(request, "fence")))


@require_POST
@for_lease(MANIFEST_BODY_BYTES_MAX)
def complete_artifact(request: HttpRequest, lease: Lease, body: bytes, artifact_id: UUID) -> HttpResponse:
    """POST leases/{lease_id}/artifacts/{artifact_id}/complete?fence="""
    message = read_message(ArtifactComplete, body)
    uploads.complete(lease, artifact_id, message.etags, fence=_number(request, "fence"))
    return HttpResponse(b"{}", content_type="application/json")


@require_GET
@for_lease(0)
def get_artifact(request: HttpRequest, lease: Lease, body: bytes, artifact_id: UUID) -> HttpResponse:
    """GET leases/{lease_id}/artifacts/{artifact_id}: the job's inputs, the checkpoint to resume, or what an earlier
    attempt prepared on a node of the same provider; nothing else.

    With `?damaged=1` where the bytes of before were not the announced ones: from the second copy, if there is one.
    """
    attempt = lease.attempt
    input_id = kind_of(attempt.job).execution(attempt).input_artifact_id
    given = {input_id, attempt.resume_artifact_id, *results_of(attempt.job).values()}
    if lease.state not in LEASE_LIVE or artifact_id not in given:
        kept = prepared.find_for(lease) if lease.state in LEASE_LIVE else None
        if kept is None or kept.pk != artifact_id:
            raise ArtifactNotFound()
    is_damaged = request.GET.get("damaged") == "1"
    return _answer(downloads.describe(Artifact.objects.get(pk=artifact_id), is_damaged=is_damaged))


@require_GET
def get_earnings(request: HttpRequest) -> HttpResponse:
    """GET earnings: of the node that signed, and of no other."""
    node = authenticate_agent(request.method or "", request.get_full_path(), request.headers, _read_body(request, 0))
    return _answer(earnings.earned_by(node))


def _append(request: HttpRequest, lease: Lease, stream: Stream, body: bytes) -> HttpResponse:
    fence, offset = _number(request, "fence"), _number(request, "offset")
    have = streams.append(lease, stream, fence=fence, offset=offset, data=body)
    _conclude(lease)
    return _answer(AppendResponse(offset=have))


def _conclude(lease: Lease) -> None:
    """The last bytes of an attempt that ended finish it now, not only at the next sweep."""
    if lease.state not in LEASE_LIVE or lease.reported_state not in ATTEMPT_ENDS:
        return
    with transaction.atomic():
        job = lifecycle.lock(lease.attempt.job_id)
        attempt = Attempt.objects.live().filter(pk=lease.attempt_id).first()
        if attempt is not None:
            reports.conclude(job, attempt)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX):
        raise BadRequest(f"?{name}= must be a whole number.")
    return int(text)


def _read_body(request: HttpRequest, bytes_max: int) -> bytes:
    body = request.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise BodyTooLarge(bytes_max=bytes_max)
    return bytes(body)


def _answer(message: BaseModel) -> HttpResponse:
    return HttpResponse(message.model_dump_json().encode(), content_type="application/json")
