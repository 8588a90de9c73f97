"""What Stripe reports of its pages and payments, by their ids: found by what we wrote on them, and moved forward."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from billing.fiat import customers, topups
from billing.fiat.errors import NotOurs
from billing.models import TopUp
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.payment_rail import outcome_of, page_expired
from billing.rails.stripe.records import Intent


def refresh_page(session_id: str) -> TopUp | None:
    """Read the page's state at Stripe, and move forward what it was made for. Calls Stripe; raises NotOurs."""
    page = stripe_client.connect().fetch_session(session_id)
    if page.mode == "setup":
        customers.refresh_cards(page.customer_id)
        return None
    if page.mode != "payment":
        raise NotOurs
    top_up = top_up_of(page.metadata)
    if page.intent_id:
        top_up = refresh_intent(page.intent_id)
    if page.status == "expired":
        top_up = topups.apply_outcome(top_up, page_expired())
    return top_up


def refresh_intent(intent_id: str) -> TopUp:
    """Read a payment's state at Stripe, and move its top-up forward. Calls Stripe; raises NotOurs."""
    return apply_intent(stripe_client.connect().fetch_intent(intent_id))


def apply_intent(intent: Intent) -> TopUp:
    """Move the top-up of a payment to where Stripe reports it; raises NotOurs, RailError."""
    top_up = top_up_of(intent.metadata)
    return topups.apply_outcome(top_up, outcome_of(intent, top_up))


def top_up_of(metadata: Mapping[str, str]) -> TopUp:
    """The top-up that something at Stripe was made for, by what we wrote on it; raises NotOurs."""
    try:
        top_up_id, owner_id = UUID(metadata["top_up_id"]), UUID(metadata["organisation_id"])
    except (KeyError, ValueError) as error:
        raise NotOurs from error
    top_up = TopUp.objects.filter(pk=top_up_id, owner_id=owner_id).first()
    if top_up is None:
        raise NotOurs
    return top_up
