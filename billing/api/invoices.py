"""/api/v1/invoices: an organisation's invoices and credit notes as JSON, CSV and PDF, and its details on them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.errors import InvoiceNotFound
from billing.invoices import show
from billing.models import BillingDetails, Invoice
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.serializers import StrictModelSerializer

INVOICES_MAX = 600  # fifty years of months
MAY = HasScope("billing:read", write="billing:write")


class InvoiceLineSerializer(serializers.Serializer[Any]):
    """A job's charge, or (below zero) what came back of one; a month's storage is of no job."""

    job_id = serializers.UUIDField(allow_null=True)
    what = serializers.CharField()
    amount = serializers.CharField()
    at = serializers.DateTimeField()


class InvoiceSerializer(serializers.Serializer[Any]):
    """Everything that it says; amounts are strings of the asset's base units."""

    id = serializers.UUIDField()
    number = serializers.CharField()
    kind = serializers.ChoiceField(choices=Invoice.Kind.choices)
    credits = serializers.CharField(allow_null=True, help_text="Number of the invoice that a credit note is to.")
    month = serializers.CharField()
    asset = serializers.CharField()
    scale = serializers.IntegerField()
    buyer = serializers.DictField(child=serializers.CharField())
    seller = serializers.DictField(child=serializers.CharField())
    lines = InvoiceLineSerializer(many=True)
    charged = serializers.CharField()
    refunded = serializers.CharField()
    total = serializers.CharField()
    tax_bps = serializers.IntegerField()
    tax = serializers.CharField(help_text="Contained in the total.")
    net = serializers.CharField()
    topped_up = serializers.CharField()
    given = serializers.CharField()
    issued_at = serializers.DateTimeField()


class DetailsSerializer(StrictModelSerializer[BillingDetails]):
    """What your invoices say of you, from the next one on."""

    class Meta:
        model = BillingDetails
        fields = ["name", "address", "country", "tax_id", "tax_bps", "tax_note"]
        read_only_fields = ["tax_bps", "tax_note"]
        extra_kwargs = {"address": {"max_length": 600}}


class InvoicesView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="invoices", responses=InvoiceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All of the organisation's, newest first."""
        rows = Invoice.objects.filter(owner_id=organisation_of(request).id).select_related("asset", "credits")
        return Response([show.as_json(row) for row in rows.order_by("-year", "-number")[:INVOICES_MAX]])


class InvoiceView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="invoice", responses=InvoiceSerializer)
    def get(self, request: Request, invoice_id: UUID) -> Response:
        """One invoice or credit note."""
        return Response(show.as_json(_find(request, invoice_id)))


class InvoicePdfView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="invoice_pdf", responses={(200, "application/pdf"): OpenApiTypes.BINARY})
    def get(self, request: Request, invoice_id: UUID) -> HttpResponse:
        """The same on paper."""
        return _file(_find(request, invoice_id), "pdf")


class InvoiceCsvView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="invoice_csv", responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, invoice_id: UUID) -> HttpResponse:
        """The same for a spreadsheet."""
        return _file(_find(request, invoice_id), "csv")


class DetailsView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="billing_details", responses=DetailsSerializer)
    def get(self, request: Request) -> Response:
        """What invoices say of the organisation; the tax rate is the operator's to set."""
        owner_id = organisation_of(request).id
        row = BillingDetails.objects.filter(pk=owner_id).first() or BillingDetails(owner_id=owner_id)
        return Response(DetailsSerializer(row).data)

    @extend_schema(operation_id="set_billing_details", request=DetailsSerializer, responses=DetailsSerializer)
    def put(self, request: Request) -> Response:
        """Change it; issued invoices stay as they are."""
        asked = DetailsSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        row, _ = BillingDetails.objects.update_or_create(
            owner_id=organisation_of(request).id, defaults=asked.validated_data
        )
        return Response(DetailsSerializer(row).data)


def _find(request: Request, invoice_id: UUID) -> Invoice:
    rows = Invoice.objects.select_related("asset", "credits")
    found = rows.filter(owner_id=organisation_of(request).id, pk=invoice_id).first()
    if found is None:
        raise InvoiceNotFound(invoice_id=str(invoice_id))
    return found


def _file(invoice: Invoice, kind: str) -> HttpResponse:
    made: bytes | str = show.as_pdf(invoice) if kind == "pdf" else show.as_csv(invoice)
    answer = HttpResponse(made, content_type="application/pdf" if kind == "pdf" else "text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="souk-{invoice.label}.{kind}"'
    return answer
