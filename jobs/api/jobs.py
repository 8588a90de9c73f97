"""/api/v1/jobs: submit, list, show, cancel, resume, confirm a price, retry."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import lifecycle, tasks
from jobs.api.bodies import answer, answer_page, find_input, find_job, read_body, read_spec
from jobs.api.job_files import FILE_SCHEMA, PARSERS, SUBMIT_QUERY, job_file_of, read_job_file, read_submit_query
from jobs.api.job_views import list_jobs, show_job
from jobs.api.schemas import IDEMPOTENCY_KEY, PAGE, JobPage, errors
from jobs.errors import SecretsMismatch
from jobs.models import Job
from jobs.placing import requotes
from jobs.spec import Spec
from jobs.wire import ConfirmPriceRequest, JobView, ResumeRequest, SubmitRequest
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import key_id_of, organisation_of, user_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent

MAY = [HasScope("jobs:read", write="jobs:write")]


class JobsView(APIView):
    """The organisation's jobs."""

    permission_classes = MAY
    parser_classes = PARSERS

    @extend_schema(operation_id="jobs_list", parameters=PAGE, responses={200: JobPage})
    def get(self, request: Request) -> Response:
        """Newest first, with what each has cost so far."""
        return answer_page(request, self, Job.objects.of(organisation_of(request)), list_jobs)

    @extend_schema(
        operation_id="job_submit",
        parameters=[IDEMPOTENCY_KEY, *SUBMIT_QUERY],
        request={"application/json": SubmitRequest, **FILE_SCHEMA},
        responses={201: JobView, **errors(400, 402, 404, 409, 413, 422)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Turn a quote into a job: queued, and placed as soon as a node is free.

        The body is JSON, or the job file as it is (YAML) with the quote in the query; secrets need JSON.
        """
        body, spec = _read_submission(request)
        organisation = organisation_of(request)
        _check_secrets(spec, body.secrets)
        job = lifecycle.submit(
            organisation=organisation,
            user=user_of(request),
            key_id=key_id_of(request),
            spec=spec,
            quote_id=body.quote_id,
            input_artifact=find_input(organisation, spec, body.input_artifact_id),
            secrets=body.secrets,
            authorization=body.authorization,
        )
        place_soon()
        return answer(show_job(job), status.HTTP_201_CREATED)


def _read_submission(request: Request) -> tuple[SubmitRequest, Spec]:
    """What is submitted, as JSON or as a job file."""
    text = job_file_of(request)
    if text is None:
        body = read_body(request, SubmitRequest)
        return body, read_spec(body.spec)
    query, spec = read_submit_query(request), read_job_file(text)
    return SubmitRequest(spec={}, **query.model_dump()), spec


class JobDetailView(APIView):
    """One job."""

    permission_classes = MAY

    @extend_schema(operation_id="job_show", responses={200: JobView, **errors(404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """The job with its attempts, their leases, and its spec."""
        return answer(show_job(find_job(request, job_id)))


class CancelView(APIView):
    """A request to end a job."""

    permission_classes = MAY

    @extend_schema(operation_id="job_cancel", request=None, responses={200: JobView, **errors(404, 409)})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Stop the job in whatever state it is; repeating it is harmless."""
        return answer(show_job(lifecycle.cancel(find_job(request, job_id).pk, actor=actor_of(request))))


class ResumeView(APIView):
    """A paused job, continued."""

    permission_classes = MAY

    @extend_schema(
        operation_id="job_resume",
        parameters=[IDEMPOTENCY_KEY],
        request=ResumeRequest,
        responses={200: JobView, **errors(400, 402, 404, 409)},
    )
    @idempotent
    def post(self, request: Request, job_id: UUID) -> Response:
        """Go on from the newest checkpoint under a higher cap."""
        cap = read_body(request, ResumeRequest).max_total_usd_micros
        job = lifecycle.resume(
            find_job(request, job_id).pk, cap_usd_micros=cap, actor=actor_of(request), user=user_of(request)
        )
        place_soon()
        return answer(show_job(job))


class ConfirmPriceView(APIView):
    """A job that waits for its customer to confirm the price of its token."""

    permission_classes = MAY

    @extend_schema(
        operation_id="job_confirm_price",
        parameters=[IDEMPOTENCY_KEY],
        request=ConfirmPriceRequest,
        responses={200: JobView, **errors(400, 402, 404, 409)},
    )
    @idempotent
    def post(self, request: Request, job_id: UUID) -> Response:
        """Go on at the price that the job waits for, with more of the token held for the same dollars."""
        price = read_body(request, ConfirmPriceRequest).usd_micros_per_token
        job = requotes.confirm(find_job(request, job_id).pk, usd_micros_per_token=price, actor=actor_of(request))
        place_soon()
        return answer(show_job(job))


class RetryView(APIView):
    """A job that ended, done again."""

    permission_classes = MAY

    @extend_schema(
        operation_id="job_retry",
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses={201: JobView, **errors(402, 404, 409)},
    )
    @idempotent
    def post(self, request: Request, job_id: UUID) -> Response:
        """A new job with the same spec and files, under a fresh quote."""
        old = find_job(request, job_id)
        job = lifecycle.resubmit(old.pk, actor=actor_of(request), user=user_of(request), key_id=key_id_of(request))
        place_soon()
        return answer(show_job(job), status.HTTP_201_CREATED)


def _check_secrets(spec: Spec, secrets: dict[str, str]) -> None:
    named, given = set(spec.secrets), set(secrets)
    if named != given:
        raise SecretsMismatch(missing=sorted(named - given), unknown=sorted(given - named))


def place_soon() -> None:
    """Wake the placement after the commit; where that fails, its schedule finds the job seconds later."""
    transaction.on_commit(tasks.place_jobs.delay, robust=True)
    transaction.on_commit(tasks.keep_endpoints.delay, robust=True)
