"""POST /api/v1/quotes"""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, read_body, read_spec
from jobs.api.job_files import FILE_SCHEMA, PARSERS, job_file_of, read_job_file
from jobs.api.schemas import IDEMPOTENCY_KEY, errors
from jobs.quoting import quotes
from jobs.wire import QuoteRequest, QuoteView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.idempotency import idempotent


class QuotesView(APIView):
    """Price promises."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]
    parser_classes = PARSERS

    @extend_schema(
        operation_id="quote_create",
        parameters=[IDEMPOTENCY_KEY],
        request={"application/json": QuoteRequest, **FILE_SCHEMA},
        responses={200: QuoteView, **errors(400, 413, 422)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """What a job file would cost and where it would run: a signed promise, or why nothing fits and what would.

        The body is the file as it is (YAML), or its content as JSON.
        """
        text = job_file_of(request)
        spec = read_spec(read_body(request, QuoteRequest).spec) if text is None else read_job_file(text)
        return answer(quotes.make_quote(spec, organisation_of(request)))
