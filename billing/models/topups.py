"""Money that a customer pays in by card, and what a customer's bank reverses."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models.fiat import SavedCard
from billing.models.ledger import Account, Transfer
from billing.states.fiat import (
    DISPUTE_MACHINE,
    REFUND_MACHINE,
    REVERSAL_MACHINE,
    TOP_UP_MACHINE,
    TOP_UP_UNDER_WAY,
    DisputeState,
    RefundState,
    ReversalState,
    TopUpState,
)
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class TopUp(models.Model):
    """One request to pay in, and what became of it. Amounts are micro-USD and whole cents."""

    class Method(models.TextChoices):
        CHECKOUT = "checkout"  # a page at Stripe, where the customer types the card
        SAVED_CARD = "saved_card"
        AUTOMATIC = "automatic"  # a saved card, asked by the owner's own rule

    STATE_MACHINE = TOP_UP_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField(db_index=True)
    amount = AmountField()
    method = models.CharField(max_length=16, choices=Method.choices)
    card = models.ForeignKey(SavedCard, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    actor = models.CharField(max_length=120)
    state = models.CharField(max_length=16, choices=TopUpState.choices, default=TopUpState.REQUESTED)
    reason = models.CharField(max_length=64, blank=True)  # why it failed: Stripe's own code, or ours
    message = models.TextField(blank=True)  # the same in words for the customer
    session_id = models.CharField(max_length=120, blank=True)
    checkout_url = models.TextField(blank=True)
    intent_id = models.CharField(max_length=120, blank=True)
    charge_id = models.CharField(max_length=120, blank=True, db_index=True)
    tax = AmountField(default=0)  # collected on top of the amount
    fee = AmountField(default=0)  # Stripe's own, paid by the platform
    # A name in billing/rails/registry.py. The database has the default too: processes of the version before name none.
    rail = models.CharField(max_length=16, default="stripe", db_default="stripe")
    is_fake = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=clock.now)
    credited_at = models.DateTimeField(null=True, blank=True)
    spendable_at = models.DateTimeField(null=True, blank=True)  # later than credited_at while the account is new
    row_digest = models.CharField(max_length=64, default="", db_default="", editable=False)  # written by a trigger

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=TopUpState.values), name="top_up_state_known"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="top_up_amount_positive"),
            models.CheckConstraint(
                condition=Q(state="succeeded", credited_at__isnull=False)
                | (~Q(state="succeeded") & Q(credited_at=None)),
                name="top_up_succeeded_is_credited",
            ),
            models.UniqueConstraint(
                fields=["owner_id"],
                condition=Q(method="automatic", state__in=[str(state) for state in TOP_UP_UNDER_WAY]),
                name="one_automatic_top_up_at_a_time",
            ),
            models.UniqueConstraint(
                fields=["intent_id"], condition=~Q(intent_id=""), name="one_top_up_per_payment_intent"
            ),
        ]
        indexes = [
            models.Index(
                fields=["created_at"],
                condition=Q(state__in=[str(state) for state in TOP_UP_UNDER_WAY]),
                name="top_up_under_way",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.owner_id} by {self.method} ({self.state})"


class AutoTopUp(models.Model):
    """A customer's rule: below the threshold, pay this in, up to so much a month. Failures pause it."""

    owner_id = models.UUIDField(primary_key=True)
    threshold = AmountField()
    amount = AmountField()
    monthly_max = AmountField()
    is_enabled = models.BooleanField(default=True)
    actor = models.CharField(max_length=120)
    failures = models.PositiveSmallIntegerField(default=0)  # in a row
    paused_at = models.DateTimeField(null=True, blank=True)
    pause_reason = models.CharField(max_length=200, blank=True)
    updated_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(threshold__gte=0, amount__gt=0, monthly_max__gte=F("amount")),
                name="auto_top_up_makes_sense",
            )
        ]

    def __str__(self) -> str:
        return f"{self.owner_id}: {self.amount} below {self.threshold}"


class TopUpRefund(models.Model):
    """Part of a top-up that goes back to the card it came from."""

    STATE_MACHINE = REFUND_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    top_up = models.ForeignKey(TopUp, on_delete=models.PROTECT, related_name="refunds")
    amount = AmountField()
    state = models.CharField(max_length=16, choices=RefundState.choices, default=RefundState.REQUESTED)
    stripe_id = models.CharField(max_length=120, unique=True, null=True, blank=True)
    shortage = AmountField(default=0)  # what the platform paid of it, and the customer still owes
    pending_transfer = models.OneToOneField(
        Transfer, null=True, blank=True, on_delete=models.PROTECT, related_name="top_up_refund"
    )
    message = models.TextField(blank=True)
    actor = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=clock.now)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=RefundState.values), name="top_up_refund_state_known"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="top_up_refund_amount_positive"),
            models.CheckConstraint(
                condition=Q(shortage__gte=0, shortage__lte=F("amount")), name="top_up_refund_shortage_is_part_of_it"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of top-up {self.top_up_id} ({self.state})"


class CardDispute(models.Model):
    """A customer's bank takes a top-up back; `loss` is what it cost us so far, before what was recovered."""

    STATE_MACHINE = DISPUTE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    stripe_id = models.CharField(max_length=120, unique=True)
    top_up = models.ForeignKey(TopUp, on_delete=models.PROTECT, related_name="disputes")
    amount = AmountField()
    loss = AmountField(default=0)
    state = models.CharField(max_length=16, choices=DisputeState.choices, default=DisputeState.INQUIRY)
    reason = models.CharField(max_length=64, blank=True)
    evidence_due_at = models.DateTimeField(null=True, blank=True)
    evidence = models.TextField(blank=True)  # prepared from our trail; the operator sends it
    evidence_sent_at = models.DateTimeField(null=True, blank=True)
    frozen_at = models.DateTimeField(null=True, blank=True)  # when it froze the customer's balance, once
    created_at = models.DateTimeField(default=clock.now)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=DisputeState.values), name="card_dispute_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.stripe_id} of {self.amount} ({self.state})"


class FraudWarning(models.Model):
    """The card's bank says that a top-up may be fraud: what is unspent of it goes back to its card alone."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    stripe_id = models.CharField(max_length=120, unique=True)
    top_up = models.ForeignKey(TopUp, on_delete=models.PROTECT, related_name="fraud_warnings")
    fraud_type = models.CharField(max_length=64, blank=True)  # in Stripe's words
    is_actionable = models.BooleanField(default=True)  # neither disputed nor refunded whole
    frozen_at = models.DateTimeField(null=True, blank=True)  # when it froze the customer's balance, once
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"{self.stripe_id}: {self.fraud_type}"


class ChargebackRecovery(models.Model):
    """What one dispute took from one account, so that a dispute that is won gives it back to the same."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    dispute = models.ForeignKey(CardDispute, on_delete=models.PROTECT, related_name="recoveries")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    amount = AmountField()
    transfer = models.OneToOneField(Transfer, on_delete=models.PROTECT, related_name="+")
    given_back = models.OneToOneField(Transfer, null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(amount__gt=0), name="recovery_amount_positive")]

    def __str__(self) -> str:
        return f"{self.amount} from {self.account_id}"


class TransferReversal(models.Model):
    """Part of what was transferred to a provider, asked back at Stripe for a dispute."""

    STATE_MACHINE = REVERSAL_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    dispute = models.ForeignKey(CardDispute, on_delete=models.PROTECT, related_name="reversals")
    provider_id = models.UUIDField()
    stripe_transfer_id = models.CharField(max_length=120)
    amount = AmountField()
    state = models.CharField(max_length=16, choices=ReversalState.choices, default=ReversalState.REQUESTED)
    message = models.TextField(blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dispute", "stripe_transfer_id"], name="one_reversal_per_transfer"),
            models.CheckConstraint(condition=Q(state__in=ReversalState.values), name="transfer_reversal_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.stripe_transfer_id} ({self.state})"
