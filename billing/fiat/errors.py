"""Everything that paying by card refuses, by name.

BillingError
|-- CardsUnavailable     503  this marketplace takes no cards
|-- TopUpRefused         400  the amount is outside of the limits; names the limit
|-- TopUpLimitReached    409  enough for one day
|-- TopUpUnderWay        409  one automatic top-up at a time
|-- TopUpNotFound        404
|-- CardNotFound         404
|-- RefundRefused        409  has the reason
|-- PayoutAccountMissing 404
|-- StripeUnreachable    503  try again in a moment
`-- WebhookRefused       400  not signed by Stripe, or not an event
"""

from __future__ import annotations

from billing.errors import BillingError


class CardsUnavailable(BillingError):
    message = "This marketplace takes no card payments: its operator credits balances. Ask the operator."
    code = "cards_unavailable"
    status = 503


class TopUpRefused(BillingError):
    message = "A top-up is in whole cents from {least} to {most}, not {amount}."
    code = "top_up_refused"
    status = 400


class TopUpLimitReached(BillingError):
    message = "Top-ups of one day may add up to {limit}; {used} of it is used in the last 24 hours."
    code = "top_up_limit_reached"


class TopUpUnderWay(BillingError):
    message = "An automatic top-up is under way already."
    code = "top_up_under_way"


class TopUpNotFound(BillingError):
    message = "There is no such top-up, or it is not yours."
    code = "top_up_not_found"
    status = 404


class CardNotFound(BillingError):
    message = "There is no such card, or it is not yours. Save one first."
    code = "card_not_found"
    status = 404


class RefundRefused(BillingError):
    message = "This top-up cannot be refunded: {why}."
    code = "refund_refused"


class PayoutAccountMissing(BillingError):
    message = "There is no payout account yet. Create one first."
    code = "payout_account_missing"
    status = 404


class StripeUnreachable(BillingError):
    message = "The payment processor did not answer as it should: {why} Nothing was lost; ask again in a moment."
    code = "stripe_unreachable"
    status = 503


class WebhookRefused(BillingError):
    message = "This is not an event that the payment processor signed for this marketplace."
    code = "webhook_refused"
    status = 400


class NotOurs(Exception):
    """What an event is about was not made by this marketplace."""
