"""Who pays: one customer at Stripe an organisation, and the cards that Stripe keeps for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing.fiat.errors import CardNotFound, NotOurs
from billing.models import SavedCard, StripeCustomer
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.customers import find_or_create
from billing.rails.stripe.records import StripeRefused
from marketplace.foundation import clock

CARDS_MAX: Final = 50


def lock_payer(owner_id: UUID) -> StripeCustomer:
    """The payer's row, locked until the transaction ends; made where it is missing."""
    StripeCustomer.objects.bulk_create([StripeCustomer(owner_id=owner_id)], ignore_conflicts=True)
    return StripeCustomer.objects.select_for_update().get(owner_id=owner_id)


def open_setup_page(owner_id: UUID) -> str:
    """A page at Stripe on which the customer saves a card; its address. Calls Stripe."""
    customer_id = find_or_create(owner_id)
    return stripe_client.connect().create_setup_page(customer_id, return_url=f"{settings.SOUK_API_URL}/").url


def refresh_cards(stripe_customer_id: str) -> list[SavedCard]:
    """Make our list of a customer's cards what Stripe's is. Calls Stripe; raises NotOurs."""
    payer = StripeCustomer.objects.filter(stripe_id=stripe_customer_id).first()
    if payer is None:
        raise NotOurs
    cards = stripe_client.connect().list_cards(stripe_customer_id)[:CARDS_MAX]
    with transaction.atomic():
        lock_payer(payer.owner_id)
        mine = SavedCard.objects.filter(owner_id=payer.owner_id)
        for card in cards:
            fields = {
                "owner_id": payer.owner_id,
                "brand": card.brand,
                "last4": card.last4,
                "exp_month": card.exp_month,
                "exp_year": card.exp_year,
                "removed_at": None,
            }
            SavedCard.objects.update_or_create(stripe_id=card.id, defaults=fields)
        gone = mine.filter(removed_at=None).exclude(stripe_id__in=[card.id for card in cards])
        gone.update(removed_at=clock.now(), is_default=False)
        _choose_default(payer.owner_id)
        return list(mine.filter(removed_at=None))


def set_default_card(owner_id: UUID, card_id: UUID) -> SavedCard:
    """Automatic top-ups use this card from now on; raises CardNotFound."""
    with transaction.atomic():
        lock_payer(owner_id)
        card = find_card(owner_id, card_id)
        SavedCard.objects.filter(owner_id=owner_id, is_default=True).update(is_default=False)
        card.is_default = True
        card.save(update_fields=["is_default"])
        return card


def remove_card(owner_id: UUID, card_id: UUID) -> None:
    """Have Stripe forget the card, then strike it off our list; a repeat finds none. Calls Stripe."""
    card = find_card(owner_id, card_id)
    with suppress(StripeRefused):  # Stripe has forgotten it before us
        stripe_client.connect().remove_card(card.stripe_id)
    with transaction.atomic():
        lock_payer(owner_id)
        SavedCard.objects.filter(pk=card.pk).update(removed_at=clock.now(), is_default=False)
        _choose_default(owner_id)


def find_card(owner_id: UUID, card_id: UUID | None = None) -> SavedCard:
    """One of the owner's cards, without an id the default one; raises CardNotFound."""
    cards = SavedCard.objects.filter(owner_id=owner_id, removed_at=None)
    card = cards.filter(pk=card_id).first() if card_id else cards.filter(is_default=True).first()
    if card is None:
        raise CardNotFound
    return card


def customer_of_card(stripe_card_id: str) -> str:
    """Whose card this was, by their id at Stripe; raises NotOurs."""
    card = SavedCard.objects.filter(stripe_id=stripe_card_id).first()
    payer = StripeCustomer.objects.filter(owner_id=card.owner_id).first() if card else None
    if payer is None or not payer.stripe_id:
        raise NotOurs
    return payer.stripe_id


def _choose_default(owner_id: UUID) -> None:
    """Where no card is the default one, the oldest becomes it."""
    cards = SavedCard.objects.filter(owner_id=owner_id, removed_at=None)
    oldest = cards.order_by("created_at", "pk").first()
    if oldest is not None and not cards.filter(is_default=True).exists():
        SavedCard.objects.filter(pk=oldest.pk).update(is_default=True)
