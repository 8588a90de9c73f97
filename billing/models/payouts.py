"""Money that leaves for providers: where to, when, what is kept back, and what the rail that pretends has paid."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.fields import AmountField
from billing.models.holding import SettlementShare
from billing.models.ledger import Asset, Transfer
from billing.states import (
    BANK_MACHINE,
    BANK_STATES_RETRIED,
    PAYOUT_MACHINE,
    PAYOUT_STATES_OPEN,
    BankState,
    PayoutState,
)
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class PayoutSettings(models.Model):
    """Where one provider's money of one asset goes, how often, and from which amount on."""

    class Schedule(models.TextChoices):
        DAILY = "daily"
        WEEKLY = "weekly"
        MANUAL = "manual"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider_id = models.UUIDField()  # owner of the provider's accounts: its organisation
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+")
    rail = models.CharField(max_length=16)
    destination = models.CharField(max_length=200)
    next_rail = models.CharField(max_length=16, blank=True)  # a changed destination, and when it begins to be used
    next_destination = models.CharField(max_length=200, blank=True)
    next_from = models.DateTimeField(null=True, blank=True)
    schedule = models.CharField(max_length=8, choices=Schedule.choices, default=Schedule.DAILY)
    minimum = AmountField()
    due_at = models.DateTimeField(null=True, blank=True)  # None: paid when asked only
    failures = models.PositiveSmallIntegerField(default=0)  # in a row; above the limit the provider has to act
    last_error = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=1)  # goes up with every change; a signed wallet names it
    created_at = models.DateTimeField(default=clock.now)
    updated_at = models.DateTimeField(default=clock.now)

    class Meta:
        verbose_name_plural = "payout settings"
        constraints = [
            models.UniqueConstraint(fields=["provider_id", "asset"], name="payout_settings_once"),
            models.CheckConstraint(
                condition=Q(schedule__in=["daily", "weekly", "manual"]), name="payout_schedule_known"
            ),
            models.CheckConstraint(
                condition=Q(schedule="manual", due_at=None) | (~Q(schedule="manual") & Q(due_at__isnull=False)),
                name="payout_schedule_has_its_time",
            ),
            models.CheckConstraint(
                condition=Q(next_from=None, next_destination="", next_rail="")
                | (Q(next_from__isnull=False) & ~Q(next_destination="") & ~Q(next_rail="")),
                name="next_destination_has_its_time",
            ),
            models.CheckConstraint(condition=Q(minimum__gte=0), name="payout_minimum_nonnegative"),
            models.CheckConstraint(condition=~Q(destination="") & ~Q(rail=""), name="payout_settings_name_a_place"),
        ]
        indexes = [models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="payout_settings_due")]

    def __str__(self) -> str:
        return f"{self.provider_id}: {self.asset_id} by {self.rail}, {self.schedule}"


class Payout(models.Model):
    """Money that leaves for one provider through one rail; at most one of an asset is under way."""

    STATE_MACHINE = PAYOUT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider_id = models.UUIDField(db_index=True)
    rail = models.CharField(max_length=16)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+")
    amount = AmountField()
    cost = AmountField(default=0)  # the rail's price, paid by the platform
    state = models.CharField(max_length=16, choices=PayoutState.choices, default=PayoutState.REQUESTED)
    destination = models.CharField(max_length=200)
    pending_transfer = models.OneToOneField(
        Transfer, null=True, blank=True, on_delete=models.PROTECT, related_name="payout"
    )
    batch_id = models.UUIDField(null=True, blank=True, db_index=True)  # payouts that are handed to the rail together
    retry_of = models.OneToOneField("self", null=True, blank=True, on_delete=models.PROTECT, related_name="retry")
    external_id = models.CharField(max_length=200, blank=True)
    last_error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=clock.now)
    checked_at = models.DateTimeField(null=True, blank=True)  # when the rail was last asked what became of it
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=PayoutState.values), name="payout_state_known"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="payout_amount_positive"),
            models.CheckConstraint(condition=Q(cost__gte=0), name="payout_cost_nonnegative"),
            models.UniqueConstraint(
                fields=["provider_id", "asset"],
                condition=Q(state__in=sorted(PAYOUT_STATES_OPEN)),
                name="one_payout_under_way",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["requested", "failed"]) | Q(pending_transfer__isnull=False),
                name="payout_reserves_before_it_leaves",
            ),
        ]
        indexes = [
            models.Index(fields=["provider_id", "-created_at"], name="payouts_of_provider"),
            models.Index(
                fields=["rail", "checked_at"], condition=Q(state__in=["reserved", "submitted"]), name="payouts_followed"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} to {self.provider_id} by {self.rail} ({self.state})"


class BankLeg(models.Model):
    """The second half of a payout by Stripe: from the provider's account there to its bank, as last reported."""

    STATE_MACHINE = BANK_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    payout = models.OneToOneField(Payout, on_delete=models.PROTECT, related_name="bank_leg")
    state = models.CharField(max_length=16, choices=BankState.choices, default=BankState.SENDING)
    bank_payout_id = models.CharField(max_length=120, blank=True, db_index=True)  # Stripe's, in the provider's account
    tries = models.PositiveSmallIntegerField(default=0)  # refused ones, in the present state
    message = models.TextField(blank=True)  # why it is not at the bank, in words for the provider
    next_at = models.DateTimeField(null=True, blank=True)  # when it is tried again; None: not by itself
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=BankState.values), name="bank_leg_state_known"),
            models.CheckConstraint(
                condition=Q(next_at=None) | Q(state__in=sorted(BANK_STATES_RETRIED)), name="bank_leg_retries_refusals"
            ),
        ]
        indexes = [models.Index(fields=["next_at"], condition=Q(next_at__isnull=False), name="bank_leg_due")]

    def __str__(self) -> str:
        return f"{self.payout_id} to the bank ({self.state})"


class ReserveSlice(models.Model):
    """The part of one lease's pay that is kept back for a while, because its provider is new."""

    share = models.OneToOneField(
        SettlementShare, primary_key=True, on_delete=models.PROTECT, related_name="reserve_slice"
    )
    provider_id = models.UUIDField()
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = AmountField()
    release_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)
    released = AmountField(default=0)  # less than `amount` where a chargeback or a slash took some
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(amount__gte=0, released__gte=0, released__lte=models.F("amount")),
                name="reserve_slice_releases_its_amount_at_most",
            )
        ]
        indexes = [
            models.Index(fields=["release_at"], condition=Q(released_at=None), name="reserve_slice_ripens"),
            models.Index(fields=["provider_id", "asset"], name="reserve_slice_of_provider"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.share_id} until {self.release_at:%F}"


class FakeMovement(models.Model):
    """What the fake rail reports as paid; it replaces a bank's own books, so no verb of the ledger reads it."""

    id = models.BigAutoField(primary_key=True)
    ref = models.CharField(max_length=200, unique=True)
    payout_id = models.UUIDField(db_index=True)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = AmountField()  # below zero: it left
    at = models.DateTimeField(default=clock.now)

    class Meta:
        indexes = [models.Index(fields=["at"], name="fake_movement_at")]

    def __str__(self) -> str:
        return f"{self.ref}: {self.amount}"
