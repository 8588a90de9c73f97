"""/api/v1/balance and /api/v1/transfers: an organisation's own money, read only. Amounts are strings of micro-USD."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.balances import balance
from billing.kinds import AccountKind, TransferCode
from billing.models import Account, Asset, Transfer
from billing.models.ledger import USD_ASSET_ID
from billing.querysets import TransferQuerySet
from marketplace.accounts.asking import organisation_of
from marketplace.accounts.permissions import HasScope
from marketplace.foundation.pagination import NewestFirst

SCOPE = "billing:read"


ASSETS_MAX = 200


class AssetBalanceSerializer(serializers.Serializer[dict[str, str]]):
    """The same in a token: amounts are texts of its base units, `scale` their decimals."""

    asset = serializers.CharField()
    scale = serializers.IntegerField()
    available_units = serializers.CharField()
    held_units = serializers.CharField()
    provider_pending_units = serializers.CharField()
    provider_available_units = serializers.CharField()


class BalanceSerializer(serializers.Serializer[dict[str, Any]]):
    """What an organisation has, as a customer and as a provider. All in micro-USD."""

    available_usd_micros = serializers.IntegerField(help_text="Prepaid, free to use.")
    held_usd_micros = serializers.IntegerField(help_text="Set aside for jobs that have not ended.")
    provider_pending_usd_micros = serializers.IntegerField(help_text="Earned, inside the challenge window.")
    provider_available_usd_micros = serializers.IntegerField(help_text="Earned, can be paid out.")
    tokens = AssetBalanceSerializer(many=True, help_text="Each token that was ever received or earned.")


class TransferSerializer(serializers.ModelSerializer[Transfer]):
    """One movement of money, as one of its two owners sees it."""

    amount_usd_micros = serializers.CharField(source="amount", help_text="Always above zero.")
    code = serializers.ChoiceField(choices=TransferCode.choices, help_text="Why it moved.")
    debit_kind = serializers.ChoiceField(
        choices=AccountKind.choices, source="debit.kind", help_text="Kind of account that it left."
    )
    credit_kind = serializers.ChoiceField(
        choices=AccountKind.choices, source="credit.kind", help_text="Kind of account that it reached."
    )
    change_usd_micros = serializers.SerializerMethodField(
        help_text="By how much it changed what you own; 0: moved within."
    )

    class Meta:
        model = Transfer
        fields = [
            "id",
            "created_at",
            "code",
            "amount_usd_micros",
            "change_usd_micros",
            "debit_kind",
            "credit_kind",
            "job_id",
            "hash",
        ]

    @extend_schema_field(serializers.CharField())
    def get_change_usd_micros(self, transfer: Transfer) -> str:
        owner_id = organisation_of(self.context["request"]).id
        return str(transfer.amount * (_is_of(transfer.credit, owner_id) - _is_of(transfer.debit, owner_id)))


class NewestTransfersFirst(NewestFirst):
    """By `seq`: many transfers of one group share their time."""

    ordering = "-seq"


class BalanceView(APIView):
    """What the organisation has."""

    permission_classes = [HasScope(SCOPE)]

    @extend_schema(operation_id="balance", responses=BalanceSerializer)
    def get(self, request: Request) -> Response:
        owner_id = organisation_of(request).id
        return Response(
            BalanceSerializer(
                {
                    "available_usd_micros": balance(owner_id, AccountKind.CUSTOMER_AVAILABLE),
                    "held_usd_micros": balance(owner_id, AccountKind.JOB_HOLD),
                    "provider_pending_usd_micros": balance(owner_id, AccountKind.PROVIDER_PENDING),
                    "provider_available_usd_micros": balance(owner_id, AccountKind.PROVIDER_AVAILABLE),
                    "tokens": _tokens_of(owner_id),
                }
            ).data
        )


@extend_schema_view(
    get=extend_schema(operation_id="transfers", description="Every transfer that touched the organisation's accounts.")
)
class TransferList(ListAPIView[Transfer]):
    permission_classes = [HasScope(SCOPE)]
    serializer_class = TransferSerializer
    pagination_class = NewestTransfersFirst
    queryset = Transfer.objects.none()  # tells the schema the model; get_queryset answers

    def get_queryset(self) -> TransferQuerySet:
        return Transfer.objects.of(organisation_of(self.request).id).select_related("debit", "credit")


def _tokens_of(owner_id: UUID) -> list[dict[str, Any]]:
    kinds = {
        "available": AccountKind.CUSTOMER_AVAILABLE,
        "held": AccountKind.JOB_HOLD,
        "provider_pending": AccountKind.PROVIDER_PENDING,
        "provider_available": AccountKind.PROVIDER_AVAILABLE,
    }
    theirs = Account.objects.filter(owner_id=owner_id, kind__in=kinds.values()).exclude(asset=USD_ASSET_ID)
    tokens = Asset.objects.filter(pk__in=theirs.values("asset")).order_by("pk")[:ASSETS_MAX]
    return [
        {"asset": token.code, "scale": token.scale}
        | {f"{name}_units": str(balance(owner_id, kind, asset_id=token.pk)) for name, kind in kinds.items()}
        for token in tokens
    ]


def _is_of(account: Account, owner_id: UUID) -> bool:
    return account.owner_id == owner_id
