"""/api/v1/solvency: what everybody is owed and what is there, for anybody; and each organisation's own part of it."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.solvency.proving import (
    NUMBER_MAX,
    REPORTS_PER_PAGE,
    as_document,
    find_report,
    list_reports,
    prove,
)
from billing.solvency.totals import FRESH_SECONDS, cached_solvency
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.errors import BadRequest

NUMBER_CHARACTERS_MAX: Final = 16
PUBLIC: Final = {"Cache-Control": f"public, max-age={FRESH_SECONDS}"}


class SignedReportSerializer(serializers.Serializer[dict[str, Any]]):
    """A sealed report: Ed25519 over its format, a newline, and the body as JSON (sorted keys, no spaces, ASCII)."""

    format = serializers.CharField()
    server_public_key = serializers.CharField()
    signature = serializers.CharField()
    body = serializers.DictField(help_text="Number, time, the report before it, and each asset's sums and root.")


class ReportsSerializer(serializers.Serializer[dict[str, Any]]):
    """Newest first."""

    results = SignedReportSerializer(many=True)
    next_before = serializers.IntegerField(allow_null=True, help_text="`before` of the next page.")


class SisterSerializer(serializers.Serializer[dict[str, str]]):
    """One step of the way from a leaf to the root."""

    hash = serializers.CharField()
    sum = serializers.CharField(help_text="What is owed below it, in base units.")


class AccountProofSerializer(serializers.Serializer[dict[str, Any]]):
    """One account, and the way from its leaf to the root."""

    asset = serializers.CharField()
    kind = serializers.CharField()
    owner_id = serializers.UUIDField()
    job_id = serializers.UUIDField(allow_null=True)
    amount = serializers.CharField(help_text="What the account was owed, in base units.")
    salt = serializers.CharField(help_text="32 bytes that nobody else is told.")
    index = serializers.IntegerField(help_text="The leaf's place in the tree.")
    sisters = SisterSerializer(many=True)


class SolvencyProofSerializer(serializers.Serializer[dict[str, Any]]):
    """`souk solvency --verify` checks it without a server."""

    report = SignedReportSerializer()
    owner_id = serializers.UUIDField()
    accounts = AccountProofSerializer(many=True)
    next = serializers.IntegerField(allow_null=True, help_text="`page` of what follows.")


class SolvencyView(APIView):
    """Sums by kind, with the sealed roots; needs no key, and tells nothing of anybody."""

    authentication_classes = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="solvency", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        return Response(cached_solvency(), headers=PUBLIC)


class SolvencyReportsView(APIView):
    """Every sealed report, newest first; needs no key."""

    authentication_classes = []
    permission_classes = [AllowAny]

    @extend_schema(
        operation_id="solvency_reports",
        parameters=[OpenApiParameter("before", int, description="Only reports with a lower number.")],
        responses=ReportsSerializer,
    )
    def get(self, request: Request) -> Response:
        found = list_reports(before=_number(request, "before"))
        last = found[-1]["body"]["number"] if len(found) == REPORTS_PER_PAGE else None
        return Response({"results": found, "next_before": last}, headers=PUBLIC)


class SolvencyReportView(APIView):
    """One sealed report; needs no key."""

    authentication_classes = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="solvency_report", responses=SignedReportSerializer)
    def get(self, request: Request, number: int) -> Response:
        if number > NUMBER_MAX:
            raise BadRequest("That is no report's number.")
        return Response(as_document(find_report(number)), headers=PUBLIC)


class SolvencyProofView(APIView):
    """The organisation's own accounts in a report, each with its salt and the way to the root; nobody else's."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(
        operation_id="solvency_proof",
        parameters=[
            OpenApiParameter("report", int, description="Its number; without it the newest."),
            OpenApiParameter("page", int, description="`next` of the page before; without it the first."),
        ],
        responses=SolvencyProofSerializer,
    )
    def get(self, request: Request) -> Response:
        number, page = _number(request, "report"), _number(request, "page") or 0
        found = prove(organisation_of(request).id, number=number, page=page)
        return Response(found, headers={"Cache-Control": "private, no-store"})


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= NUMBER_CHARACTERS_MAX
    if not is_number or int(text) > NUMBER_MAX:
        raise BadRequest(f"{name}: {text[:60]!r} is no whole number from 0 on.")
    return int(text)
