"""GET /api/v1/offers: what the market has, for anybody, and how much of it is busy."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import LeaseDevice
from marketplace.nodes.api import people
from marketplace.nodes.api.serializers import OfferFilters, OfferSummary
from marketplace.nodes.models import Offer

# A computer's own name, and the labels of its folders, say more of a provider than a stranger needs.
FOR_CUSTOMERS: Final = {"node_name": "", "lent": []}


def with_use(offers: QuerySet[Offer]) -> QuerySet[Offer]:
    """Each with `devices_busy`: how many of its devices are leased now."""
    busy = LeaseDevice.objects.filter(is_live=True, device__node=OuterRef("node"), device__is_healthy=True)
    counted = busy.order_by().values("device__node").annotate(count=Count("pk")).values("count")
    return offers.annotate(devices_busy=Coalesce(Subquery(counted, output_field=IntegerField()), 0))


class PublicOffer(OfferSummary):
    """An offer with what of it is busy. Without an account: neither a node's name nor its folders' labels."""

    devices_busy = serializers.IntegerField(read_only=True, help_text="Of its devices: how many are leased now.")

    class Meta(OfferSummary.Meta):
        fields = [*OfferSummary.Meta.fields, "devices_busy"]
        read_only_fields = fields

    def to_representation(self, instance: Offer) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if not self.context["request"].user.is_authenticated:
            shown |= FOR_CUSTOMERS
            shown["provider"] = shown["provider"].partition("@")[0]  # whoever named themselves by an e-mail address
        return shown


class OffersView(people.OffersView):
    """What the market has: price, devices and their measured throughput, region, durations, what is busy now."""

    permission_classes = [AllowAny]
    serializer_class = PublicOffer

    def get_queryset(self) -> QuerySet[Offer]:
        return with_use(super().get_queryset())

    @extend_schema(parameters=[OfferFilters])
    def get(self, request: Request, *args: object, **kwargs: object) -> Response:
        return super().get(request, *args, **kwargs)
