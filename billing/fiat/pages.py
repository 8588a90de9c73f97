"""What became of a page at Stripe on which a customer was to pay, or to save a card."""

from __future__ import annotations

from billing.fiat import customers, topups
from billing.fiat.errors import NotOurs
from billing.fiat.states import TopUpState
from billing.models import TopUp
from billing.rails import stripe_rail


def refresh_page(session_id: str) -> TopUp | None:
    """Ask Stripe how the page stands, and move forward what it was made for. Calls Stripe; raises NotOurs."""
    page = stripe_rail.door().fetch_session(session_id)
    if page.mode == "setup":
        customers.refresh_cards(page.customer_id)
        return None
    if page.mode != "payment":
        raise NotOurs
    top_up = topups.top_up_of(page.metadata)
    if page.intent_id:
        top_up = topups.refresh_intent(page.intent_id)
    if page.status == "expired":
        text = "The payment page was not used in time."
        top_up = topups.end_top_up(top_up, TopUpState.EXPIRED, reason="expired", message=text)
    return top_up
