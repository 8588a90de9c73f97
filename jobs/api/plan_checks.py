"""GET /api/v1/plan-checks"""

from __future__ import annotations

from typing import Literal

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, read_query
from jobs.api.schemas import errors
from jobs.plan_checks.summaries import Planned, find_checks
from jobs.wire import PlanChecks
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from provider_agent.protocol.bounds import COUNT_MAX


class PlanChecksQuery(BaseModel):
    """Which trainings: those like one with these facts."""

    model_config = ConfigDict(extra="forbid")
    device_kind: Literal["gpu", "cpu"]
    device_model: str = Field(default="", max_length=120)
    method: Literal["full", "lora", "qlora"] = "full"
    is_shared: bool = False
    family: str = Field(default="", max_length=32)
    parameters: int = Field(default=0, ge=0, le=COUNT_MAX)


QUERY = [
    OpenApiParameter("device_kind", OpenApiTypes.STR, required=True, enum=["gpu", "cpu"]),
    OpenApiParameter("device_model", OpenApiTypes.STR, description="As candidates of a quote name it."),
    OpenApiParameter("method", OpenApiTypes.STR, enum=["full", "lora", "qlora"]),
    OpenApiParameter("is_shared", OpenApiTypes.BOOL, description="Whether several devices train together."),
    OpenApiParameter("family", OpenApiTypes.STR, description="model_type of the model's config.json."),
    OpenApiParameter("parameters", OpenApiTypes.INT64, description="Of the model."),
]


class PlanChecksView(APIView):
    """How far the planner was off for completed trainings."""

    permission_classes = [HasScope("jobs:read")]

    @extend_schema(operation_id="plan_checks", parameters=QUERY, responses={200: PlanChecks, **errors(400)})
    def get(self, request: Request) -> Response:
        """Of the organisation's own trainings and of all: medians of what was measured beside what was planned.

        Of all, each organisation and each provider counts once, and nothing is said of fewer than three. The measured
        figures are the nodes' words, within what the marketplace saw; no price follows from them.
        """
        asked = read_query(request, PlanChecksQuery)
        return answer(find_checks(organisation_of(request), Planned(**asked.model_dump())))
