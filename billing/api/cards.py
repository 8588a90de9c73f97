"""/api/v1/cards: the cards that the payment processor keeps for an organisation. No card number ever comes here."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.stripe_errors import named_stripe_errors
from billing.fiat import customers
from billing.models import SavedCard
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.serializers import Nothing

READ, WRITE = "billing:read", "billing:write"


class CardSerializer(serializers.ModelSerializer[SavedCard]):
    """What a person knows their card by."""

    class Meta:
        model = SavedCard
        fields = ["id", "brand", "last4", "exp_month", "exp_year", "is_default", "created_at"]


class PageSerializer(serializers.Serializer[dict[str, str]]):
    """A page at the payment processor to send a person to; good for a short time."""

    url = serializers.URLField()


class CardsView(APIView):
    permission_classes = [HasScope(READ)]

    @extend_schema(operation_id="cards", responses=CardSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The organisation's saved cards."""
        mine = SavedCard.objects.filter(owner_id=organisation_of(request).id, removed_at=None)
        return Response(CardSerializer(mine.order_by("created_at")[: customers.CARDS_MAX], many=True).data)


class CardSetupView(APIView):
    permission_classes = [HasScope(WRITE)]

    @extend_schema(operation_id="save_card", request=Nothing, responses={201: PageSerializer})
    def post(self, request: Request) -> Response:
        """A page on which to save a card; the card is listed once it is."""
        with named_stripe_errors():
            url = customers.open_setup_page(organisation_of(request).id)
        return Response({"url": url}, status=status.HTTP_201_CREATED)


class CardView(APIView):
    permission_classes = [HasScope(WRITE)]

    @extend_schema(operation_id="remove_card", responses={204: None})
    def delete(self, request: Request, card_id: UUID) -> Response:
        """Have the processor forget a card."""
        with named_stripe_errors():
            customers.remove_card(organisation_of(request).id, card_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class DefaultCardView(APIView):
    permission_classes = [HasScope(WRITE)]

    @extend_schema(operation_id="choose_card", request=Nothing, responses=CardSerializer)
    def post(self, request: Request, card_id: UUID) -> Response:
        """Use this card where none is named, and for automatic top-ups."""
        card = customers.set_default_card(organisation_of(request).id, card_id)
        return Response(CardSerializer(card).data)
