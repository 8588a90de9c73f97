"""/api/v1/payout-account: the account at the payment processor through which a provider is paid."""

from __future__ import annotations

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing import tasks
from billing.api.cards import PageSerializer
from billing.api.stripe_errors import named_stripe_errors
from billing.fiat import accounts
from billing.fiat.errors import PayoutAccountMissing
from billing.models import ConnectAccount
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of, user_of
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.serializers import Nothing, StrictSerializer

READ, WRITE = "billing:read", "billing:write"


class NewAccountSerializer(StrictSerializer):
    """Where the provider is."""

    country = serializers.RegexField(r"^[A-Z]{2}$", help_text="ISO 3166-1 alpha-2, such as US or DE.")


class AccountSerializer(serializers.ModelSerializer[ConnectAccount]):
    """The account as the processor last described it."""

    class Meta:
        model = ConnectAccount
        fields = [
            "stripe_id",
            "country",
            "is_submitted",
            "is_payable",
            "requirements",
            "disabled_reason",
            "checked_at",
            "created_at",
        ]


class PayoutAccountView(APIView):
    permission_classes = [HasScope(READ, write=WRITE)]

    @extend_schema(operation_id="payout_account", responses=AccountSerializer)
    def get(self, request: Request) -> Response:
        """The organisation's payout account; it can be paid to once `is_payable`."""
        account = ConnectAccount.objects.filter(owner_id=organisation_of(request).id).first()
        if account is None:
            raise PayoutAccountMissing
        return Response(AccountSerializer(account).data)

    @extend_schema(
        operation_id="create_payout_account", request=NewAccountSerializer, responses={202: AccountSerializer}
    )
    @idempotent(required=True)
    def post(self, request: Request) -> Response:
        """Create it. Ask for it until it has its `stripe_id`, then open its onboarding page."""
        serializer = NewAccountSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        account = accounts.request_account(
            organisation_of(request).id, country=serializer.validated_data["country"], email=user_of(request).email
        )
        transaction.on_commit(tasks.dispatch_due.delay, robust=True)
        return Response(AccountSerializer(account).data, status=status.HTTP_202_ACCEPTED)


class OnboardingView(APIView):
    permission_classes = [HasScope(WRITE)]

    @extend_schema(operation_id="open_onboarding", request=Nothing, responses={201: PageSerializer})
    def post(self, request: Request) -> Response:
        """A page on which the provider gives the processor what it must know; for minutes, and once."""
        with named_stripe_errors():
            url = accounts.open_onboarding(organisation_of(request).id)
        return Response({"url": url}, status=status.HTTP_201_CREATED)
