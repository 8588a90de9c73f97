"""/api/v1/payout-settings, /payouts, /accrual, /statements: what a provider earned, and how it gets it.

Amounts are strings of the asset's base units (micro-USD for dollars).
"""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.amounts import UnitsField
from billing.models import Asset, Payout, PayoutSettings
from billing.models.ledger import USD_ASSET_CODE
from billing.payouts import paying, preferences
from billing.payouts.accrual import accrued
from billing.payouts.preferences import DesiredSettings
from billing.payouts.statement import Period, make_statement
from billing.payouts.statement_formats import write_csv, write_json, write_pdf
from billing.rails import registry
from billing.states import BankState
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.errors import NotFound
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.serializers import Nothing, StrictSerializer

SCOPES: dict[str, str] = {"scope": "billing:read", "write": "billing:write"}
DESTINATION_CHARACTERS_MAX = 200
SIGNATURE_CHARACTERS_MAX = 200


class PayoutSettingsSerializer(serializers.ModelSerializer[PayoutSettings]):
    """Where the money of one asset goes, and when."""

    asset = serializers.CharField(source="asset.code")
    minimum = serializers.CharField(help_text="Base units; less than this is not paid.")
    schedule = serializers.ChoiceField(choices=PayoutSettings.Schedule.choices)

    class Meta:
        model = PayoutSettings
        fields = [
            "asset",
            "rail",
            "destination",
            "next_rail",
            "next_destination",
            "next_from",
            "schedule",
            "minimum",
            "due_at",
            "failures",
            "last_error",
            "version",
            "updated_at",
        ]


class PayoutSettingsPage(serializers.Serializer[Any]):
    """All of the organisation's settings, and what it could choose."""

    settings = PayoutSettingsSerializer(many=True)
    rails = serializers.ListField(child=serializers.CharField(), help_text="By which this marketplace pays.")


class PayoutSettingsChangeSerializer(StrictSerializer):
    """The payout settings that the provider chooses; a changed destination waits, and all owners get a mail."""

    asset = serializers.CharField(default=USD_ASSET_CODE, max_length=16)
    rail = serializers.CharField(max_length=16)
    destination = serializers.CharField(
        max_length=DESTINATION_CHARACTERS_MAX, help_text="A connected account's id, or a wallet's address."
    )
    schedule = serializers.ChoiceField(choices=PayoutSettings.Schedule.choices, default=PayoutSettings.Schedule.DAILY)
    minimum = UnitsField(required=False, help_text="Base units, as a string.")
    signature = serializers.CharField(
        max_length=SIGNATURE_CHARACTERS_MAX,
        required=False,
        allow_blank=True,  # as the command sends it for a destination that is no wallet
        default="",
        help_text="For a wallet: its signature of the text that a refusal without one gives in details.text.",
    )


class AssetSerializer(StrictSerializer):
    """Which asset to pay out."""

    asset = serializers.CharField(default=USD_ASSET_CODE, max_length=16)


class PayoutSerializer(serializers.ModelSerializer[Payout]):
    """One payout, with its cause where it failed."""

    asset = serializers.CharField(source="asset.code")
    amount = serializers.CharField(help_text="Base units.")
    retry_of = serializers.UUIDField(source="retry_of_id", allow_null=True)
    bank_state = serializers.SerializerMethodField(
        help_text="Where a confirmed payout by Stripe is on its way from your account there to your bank; else empty."
    )
    bank_message = serializers.SerializerMethodField(help_text="Why it is not at your bank, in words; else empty.")
    bank_next_at = serializers.DateTimeField(
        source="bank_leg.next_at", default=None, allow_null=True, help_text="When it is sent there once more."
    )

    class Meta:
        model = Payout
        fields = [
            "id",
            "created_at",
            "asset",
            "amount",
            "rail",
            "destination",
            "state",
            "external_id",
            "last_error",
            "bank_state",
            "bank_message",
            "bank_next_at",
            "retry_of",
            "closed_at",
        ]

    @extend_schema_field(serializers.ChoiceField(choices=["", *BankState.values]))
    def get_bank_state(self, payout: Payout) -> str:
        return payout.bank_leg.state if hasattr(payout, "bank_leg") else ""

    def get_bank_message(self, payout: Payout) -> str:
        return payout.bank_leg.message if hasattr(payout, "bank_leg") else ""


class AccrualSerializer(serializers.Serializer[Any]):
    """What was earned of one asset up to now, and what of it comes when."""

    asset = serializers.CharField(source="asset.code")
    scale = serializers.IntegerField(source="asset.scale")
    pending = serializers.CharField(help_text="Inside the challenge window.")
    available = serializers.CharField()
    reserve = serializers.CharField(help_text="Kept back for a while, because the provider is new.")
    on_its_way = serializers.CharField(help_text="Set aside for a payout that has not arrived.")
    next_payout_at = serializers.DateTimeField(allow_null=True)
    next_payout = serializers.CharField(help_text="An estimate, if nothing else were earned until then.")
    next_release_at = serializers.DateTimeField(allow_null=True)
    next_release = serializers.CharField(help_text="Of the reserve.")
    is_on_probation = serializers.BooleanField()
    last_error = serializers.CharField()


class PayoutSettingsView(APIView):
    """Where the organisation's money goes."""

    permission_classes = [HasScope(**SCOPES)]

    @extend_schema(operation_id="payout_settings", responses=PayoutSettingsPage)
    def get(self, request: Request) -> Response:
        rows = PayoutSettings.objects.select_related("asset").filter(provider_id=organisation_of(request).id)
        return Response(PayoutSettingsPage({"settings": rows.order_by("asset"), "rails": registry.payouts_on()}).data)

    @extend_schema(
        operation_id="choose_payout_settings",
        request=PayoutSettingsChangeSerializer,
        responses=PayoutSettingsSerializer,
    )
    def put(self, request: Request) -> Response:
        """No Idempotency-Key: to choose the same again changes nothing, and a rail may be asked about the place."""
        serializer = PayoutSettingsChangeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        data = serializer.validated_data
        asset = _asset(data.pop("asset"))
        default = settings.SOUK_PAYOUT_MINIMUM_USD_MICROS if asset.code == USD_ASSET_CODE else 0
        minimum = data.pop("minimum", default)
        row = preferences.choose(
            organisation_of(request).id, asset, DesiredSettings(minimum=minimum, **data), actor=actor_of(request)
        )
        return Response(PayoutSettingsSerializer(row).data)


@extend_schema_view(get=extend_schema(operation_id="payouts", description="The organisation's payouts, newest first."))
class PayoutList(ListAPIView[Payout]):
    permission_classes = [HasScope(**SCOPES)]
    serializer_class = PayoutSerializer
    queryset = Payout.objects.none()  # names the model for the schema; get_queryset answers

    def get_queryset(self) -> QuerySet[Payout]:
        return Payout.objects.filter(provider_id=organisation_of(self.request).id).select_related("asset", "bank_leg")

    @extend_schema(operation_id="request_payout", request=AssetSerializer, responses={201: PayoutSerializer})
    @idempotent(required=True)
    def post(self, request: Request) -> Response:
        """Pay out now what is there."""
        serializer = AssetSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        asset = _asset(serializer.validated_data["asset"])
        payout = paying.pay_now(organisation_of(request).id, asset, actor=actor_of(request))
        return Response(PayoutSerializer(payout).data, status=201)


class PayoutRetry(APIView):
    """A payout in place of one that failed."""

    permission_classes = [HasScope(**SCOPES)]

    @extend_schema(operation_id="retry_payout", request=Nothing, responses={201: PayoutSerializer})
    @idempotent
    def post(self, request: Request, payout_id: UUID) -> Response:
        Nothing(data=request.data).is_valid(raise_exception=True)
        payout = paying.retry(organisation_of(request).id, payout_id, actor=actor_of(request))
        return Response(PayoutSerializer(payout).data, status=201)


class AccrualView(APIView):
    """What was earned up to now."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(operation_id="accrual", responses=AccrualSerializer(many=True))
    def get(self, request: Request) -> Response:
        return Response(AccrualSerializer(accrued(organisation_of(request).id), many=True).data)


class _File(BaseRenderer):
    """Only names a format, so that `?format=` finds it; the view writes the file itself."""

    render_style = "binary"
    charset = None

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        """The body of a refusal, as JSON."""
        return JSONRenderer().render(data)


class CsvFile(_File):
    media_type = "text/csv"
    format = "csv"


class PdfFile(_File):
    media_type = "application/pdf"
    format = "pdf"


class StatementQuery(StrictSerializer):
    """Both days are in the statement."""

    since = serializers.DateField()
    until = serializers.DateField()


class StatementView(APIView):
    """What was earned, kept back and paid in a period."""

    permission_classes = [HasScope("billing:read")]
    renderer_classes = [JSONRenderer, CsvFile, PdfFile]

    @extend_schema(
        operation_id="statement",
        parameters=[
            OpenApiParameter("from", OpenApiTypes.DATE, required=True, description="The first day, in UTC."),
            OpenApiParameter("to", OpenApiTypes.DATE, required=True, description="The last day; it is in it."),
            OpenApiParameter("format", OpenApiTypes.STR, enum=["json", "csv", "pdf"]),
        ],
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/pdf"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = StatementQuery(
            data={"since": request.query_params.get("from"), "until": request.query_params.get("to")}
        )
        query.is_valid(raise_exception=True)
        first: date = query.validated_data["since"]
        last: date = query.validated_data["until"]
        organisation, period = organisation_of(request), Period.of_days(first, last)
        sections = make_statement(organisation.id, period)
        wanted = request.accepted_renderer.format
        if wanted == "json":
            return Response(write_json(sections, period))
        response: HttpResponseBase
        if wanted == "csv":
            response = StreamingHttpResponse(write_csv(sections), content_type="text/csv; charset=utf-8")
        else:
            content = write_pdf(sections, period, name=organisation.name)
            response = HttpResponse(content, content_type="application/pdf")
        response["Content-Disposition"] = f'attachment; filename="souk-statement-{first}-{last}.{wanted}"'
        return response


def _asset(code: str) -> Asset:
    asset = Asset.objects.filter(code=code).first()
    if asset is None:
        raise NotFound(f"There is no asset {code} here.")
    return asset
