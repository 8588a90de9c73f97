"""/api/v1/balance and /api/v1/transfers: an organisation's own money in every asset, read only; amounts are strings."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.account_kinds import AccountKind
from billing.books.owned import AssetBalance, balances_of
from billing.models import Account, Transfer
from billing.models.ledger import TransferQuerySet
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.pagination import NewestFirst

SCOPE = "billing:read"
SEQ_DIGITS_MAX: Final = 18  # all of which fit a bigint
SHOWN: Final = {
    "available": AccountKind.CUSTOMER_AVAILABLE,
    "promotion": AccountKind.CUSTOMER_PROMOTION,
    "held": AccountKind.JOB_HOLD,
    "provider_pending": AccountKind.PROVIDER_PENDING,
    "provider_available": AccountKind.PROVIDER_AVAILABLE,
    "provider_reserve": AccountKind.PROVIDER_RESERVE,
    "payout_clearing": AccountKind.PAYOUT_CLEARING,
}


class AssetBalanceSerializer(serializers.Serializer[dict[str, str]]):
    """What an organisation has of one asset, in its base units: 10**scale of them are one dollar or token."""

    asset = serializers.CharField()
    scale = serializers.IntegerField()
    available = serializers.CharField(help_text="Prepaid, free to use.")
    promotion = serializers.CharField(help_text="Given credit: spent first, never paid out.")
    held = serializers.CharField(help_text="Set aside for jobs that have not ended.")
    provider_pending = serializers.CharField(help_text="Earned, inside the challenge window.")
    provider_available = serializers.CharField(help_text="Earned, can be paid out.")
    provider_reserve = serializers.CharField(help_text="Earned, kept back for a while.")
    payout_clearing = serializers.CharField(help_text="On its way out.")


class BalanceSerializer(serializers.Serializer[dict[str, Any]]):
    """What an organisation has, as a customer and as a provider: its dollars in micro-USD, and every asset it has."""

    available_usd_micros = serializers.IntegerField(help_text="Prepaid, free to use.")
    held_usd_micros = serializers.IntegerField(help_text="Set aside for jobs that have not ended.")
    provider_pending_usd_micros = serializers.IntegerField(help_text="Earned, inside the challenge window.")
    provider_available_usd_micros = serializers.IntegerField(help_text="Earned, can be paid out.")
    assets = AssetBalanceSerializer(many=True, help_text="Dollars first; tokens only where there is an account.")


class TransferSerializer(serializers.ModelSerializer[Transfer]):
    """One movement of money, as one of its two owners sees it."""

    asset = serializers.CharField(source="asset.code")
    scale = serializers.IntegerField(source="asset.scale", help_text="Decimals of the asset's base unit.")
    amount = serializers.CharField(help_text="In base units of the asset, such as micro-USD; always above zero.")
    mode = serializers.ChoiceField(
        choices=TransferMode.choices, help_text="pending reserves, until one post or void resolves it."
    )
    code = serializers.ChoiceField(choices=TransferCode.choices, help_text="Why it moved.")
    debit_kind = serializers.ChoiceField(
        choices=AccountKind.choices, source="debit.kind", help_text="Kind of account that it left."
    )
    credit_kind = serializers.ChoiceField(
        choices=AccountKind.choices, source="credit.kind", help_text="Kind of account that it reached."
    )
    change = serializers.SerializerMethodField(help_text="By how much it changed what you own; 0: moved within.")

    class Meta:
        model = Transfer
        fields = [
            "id",
            "seq",
            "created_at",
            "code",
            "asset",
            "scale",
            "amount",
            "mode",
            "change",
            "debit_kind",
            "credit_kind",
            "job_id",
            "hash",
        ]

    @extend_schema_field(serializers.CharField())
    def get_change(self, transfer: Transfer) -> str:
        owner_id = organisation_of(self.context["request"]).id
        has_moved = transfer.mode in {TransferMode.SINGLE, TransferMode.POST}
        return str(has_moved * transfer.amount * (_is_of(transfer.credit, owner_id) - _is_of(transfer.debit, owner_id)))


class NewestTransfersFirst(NewestFirst):
    """By `seq`: many transfers of one group share their time."""

    ordering = "-seq"

    @staticmethod
    def is_position(text: str) -> bool:
        """A number of a transfer."""
        return text.isascii() and text.isdecimal() and len(text) <= SEQ_DIGITS_MAX


class BalanceView(APIView):
    """What the organisation has."""

    permission_classes = [HasScope(SCOPE)]

    @extend_schema(operation_id="balance", responses=BalanceSerializer)
    def get(self, request: Request) -> Response:
        owned = balances_of(organisation_of(request).id)
        dollars = owned[0].by_kind
        return Response(
            BalanceSerializer(
                {
                    "available_usd_micros": dollars[AccountKind.CUSTOMER_AVAILABLE],
                    "held_usd_micros": dollars[AccountKind.JOB_HOLD],
                    "provider_pending_usd_micros": dollars[AccountKind.PROVIDER_PENDING],
                    "provider_available_usd_micros": dollars[AccountKind.PROVIDER_AVAILABLE],
                    "assets": [_show(each) for each in owned],
                }
            ).data
        )


@extend_schema_view(
    get=extend_schema(
        operation_id="transfers",
        description="Every transfer that touched the organisation's accounts.",
        parameters=[OpenApiParameter("job", UUID, description="Only those of this job.")],
    )
)
class TransferList(ListAPIView[Transfer]):
    permission_classes = [HasScope(SCOPE)]
    serializer_class = TransferSerializer
    pagination_class = NewestTransfersFirst
    queryset = Transfer.objects.none()  # names the model for the schema; get_queryset answers

    def get_queryset(self) -> TransferQuerySet:
        found = Transfer.objects.of(organisation_of(self.request).id).select_related("asset", "debit", "credit")
        job = self.request.query_params.get("job")
        return found if job is None else found.filter(job_id=_job_id(job))


def _show(owned: AssetBalance) -> dict[str, Any]:
    shown = {name: str(owned.by_kind[kind]) for name, kind in SHOWN.items()}
    return {"asset": owned.asset, "scale": owned.scale, **shown}


def _job_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadRequest(f"{text[:60]!r} is not a job's id.") from None


def _is_of(account: Account, owner_id: UUID) -> bool:
    return account.owner_id == owner_id
