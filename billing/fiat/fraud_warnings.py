"""The card's bank warns that a top-up may be fraud, mostly before its owner disputes it.

Nothing has moved yet, and what is unspent can still be given back to whom it was stolen from:

1. mark     one row a warning, so that the operator sees which top-up is meant
2. freeze   as for a dispute: the balance gives nothing out, neither to jobs nor by a refund that its owner asks for
3. alert    an operator refunds the payment in Stripe's dashboard, which sends it to its card and no other, out of the
            frozen balance too (refunds.py); or finds the customer honest, and unfreezes the balance

Once the payment is refunded whole or disputed, the alert closes; a dispute freezes by itself.
"""

from __future__ import annotations

from typing import Final

from django.db import transaction

from billing.fiat import chargebacks, intents
from billing.fiat.errors import NotOurs
from billing.models import FraudWarning, TopUp
from billing.money import format_usd
from billing.notices import alerts
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import EarlyWarning

TYPE_CHARACTERS_MAX: Final = 64


def refresh_warning(warning_id: str) -> FraudWarning:
    """Read a warning at Stripe, and act on it. Calls Stripe; raises NotOurs."""
    reported = stripe_client.connect().fetch_early_warning(warning_id)
    if reported.intent_id:
        intents.refresh_intent(reported.intent_id)  # the top-up is credited before its balance is frozen
    return apply_warning(reported)


def apply_warning(reported: EarlyWarning) -> FraudWarning:
    """Mark the top-up; while something can be done, freeze its owner's balance once, and alert."""
    with transaction.atomic():
        top_up = TopUp.objects.filter(charge_id=reported.charge_id).exclude(charge_id="").first()
        if top_up is None:
            raise NotOurs
        FraudWarning.objects.get_or_create(
            stripe_id=reported.id,
            defaults={"top_up": top_up, "fraud_type": reported.fraud_type[:TYPE_CHARACTERS_MAX]},
        )
        warning = FraudWarning.objects.select_for_update().get(stripe_id=reported.id)
        warning.is_actionable = reported.is_actionable
        warning.save(update_fields=["is_actionable"])
        if not reported.is_actionable:
            alerts.close(_alert_key(warning))
            return warning
        if warning.frozen_at is None:
            chargebacks.freeze_customer(top_up.owner_id, warning)
            _raise_alert(warning, top_up)
        return warning


def _alert_key(warning: FraudWarning) -> str:
    return f"fraud_warning:{warning.stripe_id}"


def _raise_alert(warning: FraudWarning, top_up: TopUp) -> None:
    alerts.raise_once(
        _alert_key(warning),
        kind="fraud_warning",
        subject=top_up.pk,
        message=(
            f"The card's bank says that a top-up of {format_usd(int(top_up.amount))} may be fraud"
            f" ({warning.fraud_type or 'no type given'}). Its owner's balance is frozen. Refund {top_up.charge_id} in"
            " Stripe's dashboard before it is disputed, or unfreeze the balance and close this alert."
        ),
    )
