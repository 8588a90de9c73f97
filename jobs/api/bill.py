"""/api/v1/jobs/{id}/bill, the provider's earnings, and both as files that prove themselves."""

from __future__ import annotations

import hashlib
from datetime import datetime
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, find_job, read_query
from jobs.api.schemas import errors
from jobs.bills import earnings
from jobs.bills.bill import make_bill
from jobs.bills.exports import sign_export
from jobs.wire import BILL_FORMAT, EARNINGS_FORMAT, BillView, SignedExport, SigningKeyView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation import clock, signing
from provider_agent.protocol import Moment


class JobBillView(APIView):
    """What a job cost, and the proof."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(operation_id="job_bill", responses={200: BillView, **errors(404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Every lease with its signed receipts; adds up to the charged amount, to the unit."""
        return answer(make_bill(find_job(request, job_id)))


class JobBillExportView(APIView):
    """The same as a file."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(operation_id="job_bill_export", responses={200: SignedExport, **errors(404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """The bill with the marketplace's signature; `souk bill --verify FILE` checks it without a server."""
        return answer(sign_export(BILL_FORMAT, make_bill(find_job(request, job_id))))


class Span(BaseModel):
    """From when until before when a lease has to have ended."""

    model_config = ConfigDict(extra="forbid")
    since: Moment | None = None
    until: Moment | None = None


class EarningsExportView(APIView):
    """What a provider's leases earned, as a file."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(
        operation_id="earnings_export",
        parameters=[
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="Thirty days ago where it is left out."),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="Now where it is left out."),
        ],
        responses={200: SignedExport, **errors(400, 404, 409)},
    )
    def get(self, request: Request) -> Response:
        """The provider's own leases that ended in a time, with every receipt, signed by the marketplace."""
        span = read_query(request, Span)
        until: datetime = span.until or clock.now()
        view = earnings.list_earnings(organisation_of(request).id, since=span.since, until=until)
        return answer(sign_export(EARNINGS_FORMAT, view))


class SigningKeyApi(APIView):
    """By what everybody knows this marketplace's signatures."""

    permission_classes = [AllowAny]
    authentication_classes = ()

    @extend_schema(operation_id="signing_key", auth=[], responses={200: SigningKeyView})
    def get(self, request: Request) -> Response:
        """The public key of exported bills and earnings, and its SHA-256; keep it, and give it to --server-key."""
        key = signing.server_public_key_hex()
        return answer(SigningKeyView(public_key=key, sha256=hashlib.sha256(bytes.fromhex(key)).hexdigest()))
