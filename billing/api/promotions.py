"""/api/v1/promotions: credit that was given, and codes that turn into it."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.charging import promotions
from billing.models import PromotionGrant
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.serializers import StrictSerializer
from marketplace.foundation.throttles import ScopedThrottle


class RedeemSerializer(StrictSerializer):
    """The code, in any case."""

    code = serializers.CharField(max_length=40)


class GrantSerializer(serializers.ModelSerializer[PromotionGrant]):
    """Given credit: spent before money, never paid out. Amounts are strings of base units."""

    asset = serializers.CharField(source="asset.code")
    amount = serializers.CharField()
    left = serializers.CharField()

    class Meta:
        model = PromotionGrant
        fields = ["id", "asset", "amount", "left", "expires_at", "created_at"]


@extend_schema_view(get=extend_schema(operation_id="promotions", description="Credit that was given to you."))
class PromotionsView(ListAPIView[PromotionGrant]):
    permission_classes = [HasScope("billing:read", write="billing:write")]
    serializer_class = GrantSerializer
    queryset = PromotionGrant.objects.none()
    throttle_scope = "signin"  # codes are not to be guessed

    def get_throttles(self) -> list[object]:  # type: ignore[override]
        return [ScopedThrottle()] if self.request.method == "POST" else list(super().get_throttles())

    def get_queryset(self) -> QuerySet[PromotionGrant]:
        return PromotionGrant.objects.filter(owner_id=organisation_of(self.request).id).select_related("asset")

    @extend_schema(operation_id="redeem_promotion", request=RedeemSerializer, responses={201: GrantSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Turn a code into credit."""
        asked = RedeemSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given = promotions.redeem(organisation_of(request).id, asked.validated_data["code"], actor=actor_of(request))
        return Response(GrantSerializer(given).data, status=status.HTTP_201_CREATED)
