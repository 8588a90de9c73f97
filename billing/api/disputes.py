"""/api/v1/disputes: both sides of a contested lease. Neither side learns who the other is."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.contesting import disputes
from billing.errors import DisputeNotFound, NothingToDispute
from billing.models import Dispute
from billing.models.disputes import DisputeQuerySet
from billing.states import DisputeState
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.pagination import NewestFirst
from marketplace.foundation.serializers import Nothing, StrictSerializer

MAY = HasScope("billing:read", write="billing:write")


class AttachmentSerializer(StrictSerializer):
    """A file that stays with whoever has it; its hash proves later that it is the same one."""

    name = serializers.CharField(max_length=disputes.ATTACHMENT_NAME_CHARACTERS_MAX)
    sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")


class StatementSerializer(StrictSerializer):
    """What one side says."""

    text = serializers.CharField(max_length=disputes.TEXT_CHARACTERS_MAX)
    attachments = serializers.ListField(
        child=AttachmentSerializer(), required=False, max_length=disputes.ATTACHMENTS_MAX
    )


class NewDisputeSerializer(StatementSerializer):
    """What is contested, and why."""

    lease_id = serializers.UUIDField()


class DisputeSerializer(serializers.ModelSerializer[Dispute]):
    """One contested lease. Amounts are strings of the asset's base units."""

    side = serializers.SerializerMethodField(help_text="customer or provider: which one you are.")
    asset = serializers.CharField(source="asset.code")
    amount = serializers.CharField(help_text="Frozen until it is decided.")
    state = serializers.ChoiceField(choices=DisputeState.choices)
    attachments = AttachmentSerializer(many=True)
    answer_attachments = AttachmentSerializer(many=True)
    to_customer = serializers.CharField(allow_null=True)
    to_provider = serializers.CharField(allow_null=True)
    to_platform = serializers.CharField(allow_null=True)

    class Meta:
        model = Dispute
        fields = [
            "id",
            "side",
            "job_id",
            "lease_id",
            "asset",
            "amount",
            "state",
            "text",
            "attachments",
            "opened_at",
            "answer_until",
            "answer",
            "answer_attachments",
            "answered_at",
            "decide_until",
            "to_customer",
            "to_provider",
            "to_platform",
            "decision",
            "closed_at",
        ]

    @extend_schema_field(serializers.ChoiceField(choices=["customer", "provider"]))
    def get_side(self, dispute: Dispute) -> str:
        is_customer = dispute.customer_id == organisation_of(self.context["request"]).id
        return "customer" if is_customer else "provider"


class NewestDisputesFirst(NewestFirst):
    ordering = "-opened_at"


@extend_schema_view(get=extend_schema(operation_id="disputes", description="Disputes that you are a side of."))
class DisputesView(ListAPIView[Dispute]):
    permission_classes = [MAY]
    serializer_class = DisputeSerializer
    pagination_class = NewestDisputesFirst
    queryset = Dispute.objects.none()  # names the model for the schema; get_queryset answers

    def get_queryset(self) -> DisputeQuerySet:
        return Dispute.objects.of(organisation_of(self.request).id).select_related("asset")

    @extend_schema(operation_id="open_dispute", request=NewDisputeSerializer, responses={201: DisputeSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Contest what a lease cost, while its challenge window is open."""
        asked = NewDisputeSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        customer_id, lease_id = organisation_of(request).id, asked.validated_data["lease_id"]
        try:
            made = disputes.open_dispute(customer_id=customer_id, actor=actor_of(request), **asked.validated_data)
        except NothingToDispute as error:
            disputes.complain_late(customer_id=customer_id, lease_id=lease_id)
            return self.handle_exception(error)  # an answer, so that what was noted is not rolled back with it
        return _show(request, made, status.HTTP_201_CREATED)


class DisputeView(APIView):
    """One dispute that you are a side of."""

    permission_classes = [MAY]

    @extend_schema(operation_id="dispute", responses=DisputeSerializer)
    def get(self, request: Request, dispute_id: UUID) -> Response:
        found = Dispute.objects.of(organisation_of(request).id).filter(pk=dispute_id).first()
        if found is None:
            raise DisputeNotFound(dispute_id=str(dispute_id))
        return _show(request, found)


class AnswerView(APIView):
    """The provider's answer."""

    permission_classes = [MAY]

    @extend_schema(operation_id="answer_dispute", request=StatementSerializer, responses=DisputeSerializer)
    @idempotent
    def post(self, request: Request, dispute_id: UUID) -> Response:
        asked = StatementSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        provider_id = organisation_of(request).id
        answered = disputes.answer(dispute_id, provider_id=provider_id, actor=actor_of(request), **asked.validated_data)
        return _show(request, answered)


class WithdrawView(APIView):
    """The customer withdraws it."""

    permission_classes = [MAY]

    @extend_schema(operation_id="withdraw_dispute", request=Nothing, responses=DisputeSerializer)
    @idempotent
    def post(self, request: Request, dispute_id: UUID) -> Response:
        Nothing(data=request.data).is_valid(raise_exception=True)
        customer_id = organisation_of(request).id
        return _show(request, disputes.withdraw(dispute_id, customer_id=customer_id, actor=actor_of(request)))


def _show(request: Request, dispute: Dispute, code: int = status.HTTP_200_OK) -> Response:
    return Response(DisputeSerializer(dispute, context={"request": request}).data, status=code)
