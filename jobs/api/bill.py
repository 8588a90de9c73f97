"""/api/v1/jobs/{id}/bill"""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, find_job
from jobs.api.schemas import errors
from jobs.bills import make_bill
from jobs.wire import BillView
from marketplace.accounts.permissions import HasScope


class JobBillView(APIView):
    """What a job cost, and the proof."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(operation_id="job_bill", responses={200: BillView, **errors(404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Every lease with its signed receipts; adds up to the charged amount, to the micro-dollar."""
        return answer(make_bill(find_job(request, job_id)))
