"""Events and bookings of Stripe, stored once before anything acts on them; customers, cards and accounts there."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class StripeEvent(models.Model):
    """One webhook event; its id makes a repeated delivery harmless."""

    class Outcome(models.TextChoices):
        WAITING = "waiting"
        HANDLED = "handled"
        IGNORED = "ignored"  # of a type, or about a thing, that is none of ours
        GIVEN_UP = "given_up"

    event_id = models.CharField(primary_key=True, max_length=255)
    type = models.CharField(max_length=120)
    account = models.CharField(max_length=255, blank=True)
    created = models.DateTimeField()
    payload: models.JSONField[Any, Any] = models.JSONField()
    received_at = models.DateTimeField(default=clock.now)
    processed_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    outcome = models.CharField(max_length=16, choices=Outcome.choices, default=Outcome.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(default=clock.now)  # not before; moves on with every attempt

    class Meta:
        indexes = [
            models.Index(fields=["received_at"], condition=Q(processed_at=None), name="stripe_event_unprocessed")
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(outcome="waiting", processed_at=None)
                | (Q(outcome__in=["handled", "ignored", "given_up"]) & Q(processed_at__isnull=False)),
                name="stripe_event_processed_has_its_outcome",
            )
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"


class StripeCursor(models.Model):
    """Up to when the poller has seen everything of one list."""

    name = models.CharField(primary_key=True, max_length=32)
    seen_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} until {self.seen_until}"


class StripeBooking(models.Model):
    """One change of Stripe's balance that the ledger has; its row is written with its transfers, so it is had once."""

    ref = models.CharField(primary_key=True, max_length=120)  # Stripe's balance transaction
    group_id = models.UUIDField()
    booked_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return self.ref


class StripeCustomer(models.Model):
    """An organisation as a payer at Stripe; its row is also the lock under which its limits are checked."""

    owner_id = models.UUIDField(primary_key=True)
    stripe_id = models.CharField(max_length=120, unique=True, null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return self.stripe_id or f"{self.owner_id} (not at Stripe yet)"


class SavedCard(models.Model):
    """A card that Stripe keeps for a customer; here are only the details by which its owner knows it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField(db_index=True)
    stripe_id = models.CharField(max_length=120, unique=True)  # of the payment method
    brand = models.CharField(max_length=32)
    last4 = models.CharField(max_length=4)
    exp_month = models.PositiveSmallIntegerField()
    exp_year = models.PositiveSmallIntegerField()
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=clock.now)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner_id"], condition=Q(is_default=True, removed_at=None), name="one_default_card_per_owner"
            )
        ]

    def __str__(self) -> str:
        return f"{self.brand} ...{self.last4}"


class ConnectAccount(models.Model):
    """A provider's account at Stripe, as Stripe last described it; payouts go there only while it may take them."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField(unique=True)
    stripe_id = models.CharField(max_length=120, unique=True, null=True, blank=True)
    country = models.CharField(max_length=2)
    email = models.EmailField(blank=True)
    is_submitted = models.BooleanField(default=False)  # the provider has filled in what Stripe asks for
    is_payable = models.BooleanField(default=False)  # transfers active and payouts enabled
    requirements: models.JSONField[Any, Any] = models.JSONField(default=list, blank=True)  # what Stripe still wants
    disabled_reason = models.CharField(max_length=120, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"{self.owner_id}: {self.stripe_id} ({'payable' if self.is_payable else 'not payable'})"
