"""/api/v1/top-ups: pay in by card, automatically too, and have back what was not spent. Amounts are micro-USD strings.

A request is stored and answered with 202; the payment processor is called after that. Poll the top-up
until it has its `checkout_url`, or has ended.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing import tasks
from billing.api.amounts import UsdMicrosField
from billing.fiat import automatic, refunds, topups
from billing.fiat.errors import TopUpNotFound
from billing.models import AutoTopUp, TopUp, TopUpRefund
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.serializers import StrictSerializer

READ, WRITE = "billing:read", "billing:write"


@extend_schema_field(OpenApiTypes.STR)
class AmountField(UsdMicrosField):
    """In the schema: a string."""


class NewTopUpSerializer(StrictSerializer):
    """What to pay in, and how."""

    amount_usd_micros = AmountField(help_text='Whole cents, in micro-USD, as a string: "50000000" is $50.00.')
    method = serializers.ChoiceField(
        choices=[TopUp.Method.CHECKOUT, TopUp.Method.SAVED_CARD],
        default=TopUp.Method.CHECKOUT,
        help_text="checkout: on the processor's page, at `checkout_url`. saved_card: at once.",
    )
    card_id = serializers.UUIDField(required=False, help_text="With saved_card; the default card where it is missing.")
    rail = serializers.CharField(
        max_length=16, default="", help_text="By which rail; without it the first that takes payments by this method."
    )
    save_card = serializers.BooleanField(default=False, help_text="With checkout: keep the card for later top-ups.")


class TopUpSerializer(serializers.ModelSerializer[TopUp]):
    """One top-up, and what became of it."""

    amount_usd_micros = AmountField(source="amount")
    tax_usd_micros = AmountField(source="tax", help_text="Collected on top of the amount.")

    class Meta:
        model = TopUp
        fields = [
            "id",
            "created_at",
            "amount_usd_micros",
            "tax_usd_micros",
            "method",
            "card",
            "state",
            "reason",
            "message",
            "checkout_url",
            "credited_at",
            "spendable_at",
            "is_fake",
        ]


class NewRefundSerializer(StrictSerializer):
    """How much of a top-up to send back."""

    amount_usd_micros = AmountField(required=False, help_text="Whole cents; all that is left of it where missing.")


class RefundSerializer(serializers.ModelSerializer[TopUpRefund]):
    """One refund of a top-up."""

    amount_usd_micros = AmountField(source="amount")

    class Meta:
        model = TopUpRefund
        fields = ["id", "created_at", "top_up", "amount_usd_micros", "state", "message", "closed_at"]


class RuleSerializer(serializers.ModelSerializer[AutoTopUp]):
    """When to pay in automatically."""

    threshold_usd_micros = AmountField(source="threshold", help_text="Pay in when the balance is below this.")
    amount_usd_micros = AmountField(source="amount", help_text="How much each time.")
    monthly_max_usd_micros = AmountField(source="monthly_max", help_text="At most this much in any 30 days.")

    class Meta:
        model = AutoTopUp
        fields = [
            "threshold_usd_micros",
            "amount_usd_micros",
            "monthly_max_usd_micros",
            "is_enabled",
            "failures",
            "paused_at",
            "pause_reason",
        ]


class NewRuleSerializer(StrictSerializer):
    """The rule as it shall be; setting it ends a pause."""

    threshold_usd_micros = AmountField()
    amount_usd_micros = AmountField()
    monthly_max_usd_micros = AmountField()
    is_enabled = serializers.BooleanField(default=True)


@extend_schema_view(get=extend_schema(operation_id="top_ups", description="The organisation's top-ups, newest first."))
class TopUpsView(ListAPIView[TopUp]):
    permission_classes = [HasScope(READ, write=WRITE)]
    serializer_class = TopUpSerializer
    queryset = TopUp.objects.none()  # names the model for the schema; get_queryset answers

    def get_queryset(self) -> QuerySet[TopUp]:
        return TopUp.objects.filter(owner_id=organisation_of(self.request).id)

    @extend_schema(operation_id="request_top_up", request=NewTopUpSerializer, responses={202: TopUpSerializer})
    @idempotent(required=True)
    def post(self, request: Request) -> Response:
        """Pay in. Ask for the top-up until it is no longer `requested`."""
        wanted = _read(NewTopUpSerializer, request)
        top_up = topups.request_top_up(
            organisation_of(request).id,
            wanted["amount_usd_micros"],
            method=wanted["method"],
            card_id=wanted.get("card_id"),
            save_card=wanted["save_card"],
            rail=wanted["rail"],
            actor=actor_of(request),
        )
        transaction.on_commit(tasks.dispatch_due.delay, robust=True)
        return Response(TopUpSerializer(top_up).data, status=status.HTTP_202_ACCEPTED)


class TopUpView(APIView):
    permission_classes = [HasScope(READ)]

    @extend_schema(operation_id="top_up", responses=TopUpSerializer)
    def get(self, request: Request, top_up_id: UUID) -> Response:
        """One top-up."""
        top_up = TopUp.objects.filter(pk=top_up_id, owner_id=organisation_of(request).id).first()
        if top_up is None:
            raise TopUpNotFound
        return Response(TopUpSerializer(top_up).data)


class RefundsView(APIView):
    permission_classes = [HasScope(READ, write=WRITE)]

    @extend_schema(operation_id="top_up_refunds", responses=RefundSerializer(many=True))
    def get(self, request: Request, top_up_id: UUID) -> Response:
        """The refunds of one top-up."""
        mine = TopUpRefund.objects.filter(top_up_id=top_up_id, top_up__owner_id=organisation_of(request).id)
        return Response(RefundSerializer(mine.order_by("created_at"), many=True).data)

    @extend_schema(operation_id="refund_top_up", request=NewRefundSerializer, responses={202: RefundSerializer})
    @idempotent(required=True)
    def post(self, request: Request, top_up_id: UUID) -> Response:
        """Send unspent balance back to the card that this top-up came from."""
        refund = refunds.request_refund(
            top_up_id,
            owner_id=organisation_of(request).id,
            amount=_read(NewRefundSerializer, request).get("amount_usd_micros"),
            actor=actor_of(request),
        )
        transaction.on_commit(tasks.dispatch_due.delay, robust=True)
        return Response(RefundSerializer(refund).data, status=status.HTTP_202_ACCEPTED)


class RuleView(APIView):
    permission_classes = [HasScope(READ, write=WRITE)]

    @extend_schema(operation_id="auto_top_up", responses=RuleSerializer)
    def get(self, request: Request) -> Response:
        """The rule for automatic top-ups."""
        rule = AutoTopUp.objects.filter(owner_id=organisation_of(request).id).first()
        if rule is None:
            raise TopUpNotFound("There is no rule for automatic top-ups.")
        return Response(RuleSerializer(rule).data)

    @extend_schema(operation_id="set_auto_top_up", request=NewRuleSerializer, responses=RuleSerializer)
    @idempotent(required=True)
    def put(self, request: Request) -> Response:
        """Set the rule, and end its pause."""
        wanted = _read(NewRuleSerializer, request)
        rule = automatic.set_rule(
            organisation_of(request).id,
            threshold=wanted["threshold_usd_micros"],
            amount=wanted["amount_usd_micros"],
            monthly_max=wanted["monthly_max_usd_micros"],
            is_enabled=wanted["is_enabled"],
            actor=actor_of(request),
        )
        return Response(RuleSerializer(rule).data)


def _read(serializer_class: type[StrictSerializer], request: Request) -> dict[str, Any]:
    serializer = serializer_class(data=request.data)
    serializer.is_valid(raise_exception=True)
    wanted: dict[str, Any] = serializer.validated_data
    return wanted
