"""A card payment that only pretends: a page of our own, marked FAKE, instead of Stripe's; on loopback only."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings

from billing.models import TopUp
from billing.models.ledger import USD_ASSET_ID
from billing.rails import loopback
from billing.rails.payments_in import PaymentCall, PaymentFate, PaymentOutcome, Receipt, RequestedPayments
from billing.rails.stripe import client as stripe_client


class FakePayments(RequestedPayments):
    """Takes pretended dollars. Nothing comes in at Stripe, so the mirror is the operator's cash and not Stripe's."""

    name: ClassVar[str] = "fake"

    @classmethod
    def is_on(cls) -> bool:
        """Whether cards are pretended; a key for Stripe always wins. Raises FakeMoneyRefused."""
        return not stripe_client.is_configured() and loopback.is_fake_money_on("The fake card")

    def page_url(self, payment: TopUp) -> str:
        return f"{settings.SOUK_API_URL}/api/v1/fake-card/{payment.pk}"

    def open(self, payment: TopUp, call: PaymentCall) -> PaymentOutcome:
        return PaymentOutcome(PaymentFate.UNDER_WAY, page_url=self.page_url(payment))

    def find(self, payment: TopUp) -> PaymentOutcome:
        """The page itself reports a payment, at once: until then there is none."""
        return paid(payment) if payment.credited_at else PaymentOutcome(PaymentFate.UNDER_WAY)


def paid(payment: TopUp) -> PaymentOutcome:
    """What the page reports when its button is pressed."""
    receipt = Receipt(
        owner_id=payment.owner_id,
        asset_id=USD_ASSET_ID,
        amount=payment.amount,
        reference=f"fake card {payment.pk}",
        payer="fake",
    )
    return PaymentOutcome(PaymentFate.PAID, receipt, reason="fake")
