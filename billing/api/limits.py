"""/api/v1/spend-limits: how much the organisation and its members may spend, and have spent."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.amounts import UnitsField
from billing.charging import limits
from billing.charging.limits import Standing
from billing.models import SpendLimit
from billing.models.limits import Period
from marketplace.accounts.models import Membership
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import membership_of, organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.errors import NotFound
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.serializers import StrictSerializer

LIMITS_MAX = 1_000  # shown at once; an organisation has two, and two a member

MAY = HasScope("billing:read", write="billing:write")


class NewLimitSerializer(StrictSerializer):
    """The most that may be spent; setting it again replaces it."""

    member_id = serializers.UUIDField(required=False, allow_null=True, help_text="Without: the whole organisation.")
    period = serializers.ChoiceField(choices=Period.choices, default=Period.MONTH.value)
    amount_usd_micros = UnitsField(help_text="A string of micro-USD.")


class LimitSerializer(serializers.Serializer[Standing]):
    """One limit and where it stands. Amounts are strings of micro-USD."""

    id = serializers.UUIDField(source="limit.id")
    member_id = serializers.UUIDField(source="limit.member_id", allow_null=True)
    period = serializers.ChoiceField(choices=Period.choices, source="limit.period")
    amount_usd_micros = serializers.CharField(source="limit.amount")
    used_usd_micros = serializers.CharField(
        source="used", help_text="Caps of living jobs, and what this month cost, calls included."
    )
    left_usd_micros = serializers.CharField(source="left")
    reached_percents = serializers.ListField(child=serializers.IntegerField(), help_text="Of 50, 80, 100: passed.")
    resets_at = serializers.DateTimeField(allow_null=True)


class LimitsView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="spend_limits", responses=LimitSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All limits of the organisation; who may not set them sees the organisation's and their own."""
        rows = SpendLimit.objects.filter(owner_id=organisation_of(request).id).order_by("period", "created_at")
        membership = membership_of(request)
        if membership.role == "member":
            rows = rows.filter(member_id=None) | rows.filter(member_id=membership.user_id)
        found = [limits.standing_of(row) for row in rows[:LIMITS_MAX]]
        return Response([LimitSerializer(each).data for each in found])

    @extend_schema(operation_id="set_spend_limit", request=NewLimitSerializer, responses={201: LimitSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Set a limit; it counts from the next job on."""
        asked = NewLimitSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        data, organisation = asked.validated_data, organisation_of(request)
        member_id = data.get("member_id")
        if member_id and not Membership.objects.filter(organisation=organisation, user_id=member_id).exists():
            raise NotFound
        made = limits.set_limit(
            organisation.id,
            member_id=member_id,
            period=data["period"],
            amount=data["amount_usd_micros"],
            actor=actor_of(request),
        )
        return Response(LimitSerializer(limits.standing_of(made)).data, status=status.HTTP_201_CREATED)


class LimitView(APIView):
    permission_classes = [MAY]

    @extend_schema(operation_id="remove_spend_limit", responses={204: None})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        """No limit of this kind any more."""
        if not limits.remove_limit(organisation_of(request).id, limit_id):
            raise NotFound
        return Response(status=status.HTTP_204_NO_CONTENT)
