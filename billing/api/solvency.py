"""/api/v1/solvency: what everybody is owed and what is there, for anybody who asks."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.solvency import FRESH_SECONDS, cached_solvency


class SolvencyView(APIView):
    """Sums by kind, with the sealed roots; needs no key, and tells nothing of anybody."""

    authentication_classes = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="solvency", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        return Response(cached_solvency(), headers={"Cache-Control": f"public, max-age={FRESH_SECONDS}"})
