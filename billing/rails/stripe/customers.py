"""One customer at Stripe an organisation, made once."""

from __future__ import annotations

from uuid import UUID

from billing.models import StripeCustomer
from billing.rails.stripe import client as stripe_client
from marketplace.accounts.models import Organisation


def find_or_create(owner_id: UUID) -> str:
    """The payer's id at Stripe. Calls Stripe, so never inside a transaction; raises RailError."""
    StripeCustomer.objects.bulk_create([StripeCustomer(owner_id=owner_id)], ignore_conflicts=True)
    known = StripeCustomer.objects.get(owner_id=owner_id).stripe_id
    if known:
        return known
    name = Organisation.objects.filter(pk=owner_id).values_list("name", flat=True).first() or str(owner_id)
    made = stripe_client.connect().create_customer(str(owner_id), name)
    StripeCustomer.objects.filter(owner_id=owner_id, stripe_id=None).update(stripe_id=made)
    return StripeCustomer.objects.values_list("stripe_id", flat=True).get(owner_id=owner_id) or made
