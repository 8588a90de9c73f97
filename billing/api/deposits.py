"""/api/v1/deposits: what an organisation has paid in, however it came; read only."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from billing.models import Deposit
from billing.models.ledger import Asset
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of


class DepositSerializer(serializers.ModelSerializer[Deposit]):
    """One payment in, credited once."""

    asset = serializers.SlugRelatedField[Asset](slug_field="code", read_only=True)
    scale = serializers.IntegerField(source="asset.scale", read_only=True)
    amount = serializers.CharField(help_text="In base units of the asset, such as micro-USD.")

    class Meta:
        model = Deposit
        fields = ["id", "created_at", "asset", "scale", "amount", "rail", "reference"]


@extend_schema_view(get=extend_schema(operation_id="deposits", description="What was paid in, newest first."))
class DepositList(ListAPIView[Deposit]):
    permission_classes = [HasScope("billing:read")]
    serializer_class = DepositSerializer
    queryset = Deposit.objects.none()  # names the model for the schema; get_queryset answers

    def get_queryset(self) -> QuerySet[Deposit]:
        return Deposit.objects.filter(owner_id=organisation_of(self.request).id).select_related("asset")
