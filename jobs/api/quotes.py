"""POST /api/v1/quotes"""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, read_body, read_spec
from jobs.api.schemas import IDEMPOTENCY_KEY, errors
from jobs.quoting import quotes
from jobs.wire import QuoteRequest, QuoteView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.idempotency import idempotent


class QuotesView(APIView):
    """Price promises."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]

    @extend_schema(
        operation_id="quote_create",
        parameters=[IDEMPOTENCY_KEY],
        request=QuoteRequest,
        responses={200: QuoteView, **errors(400, 422)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """What a job file would cost and where it would run: a signed promise, or why nothing fits and what would."""
        spec = read_spec(read_body(request, QuoteRequest).spec)
        return answer(quotes.make_quote(spec, organisation_of(request)))
