"""Reports of how the ledger compares with the outside, and the switch that stops payouts."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from billing.account_kinds import AccountKind
from billing.fields import AmountField
from billing.models.ledger import Asset
from billing.states import BREAKER_MACHINE, BreakerState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class Reconciliation(models.Model):
    """One comparison of the ledger with every rail that is on."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    started_at = models.DateTimeField(default=clock.now)
    ended_at = models.DateTimeField(default=clock.now)
    reason = models.CharField(max_length=32)  # "hourly", "payout run", "by hand"
    unexplained = models.PositiveIntegerField(default=0)
    unanswered: models.JSONField[Any, Any] = models.JSONField(default=dict)  # rail -> why it could not be asked

    class Meta:
        indexes = [models.Index(fields=["-started_at"], name="reconciliation_newest")]

    def __str__(self) -> str:
        return f"{self.started_at:%F %T}: {self.unexplained} unexplained"

    @property
    def is_clean(self) -> bool:
        """Every rail answered, and every difference has its reason."""
        return not self.unexplained and not self.unanswered


class Position(models.Model):
    """The amount outside by one mirror of the ledger, and by the outside's own report, at one moment."""

    id = models.BigAutoField(primary_key=True)
    reconciliation = models.ForeignKey(Reconciliation, on_delete=models.CASCADE, related_name="positions")
    rail = models.CharField(max_length=16)
    kind = models.CharField(max_length=24, choices=AccountKind.choices)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+")
    ledger = AmountField()
    outside = AmountField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["reconciliation", "kind", "asset"], name="position_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.asset_id}: {self.ledger} here, {self.outside} outside"


class Difference(models.Model):
    """One thing on which ledger and outside do not agree, with what explains it, if anything does."""

    class Kind(models.TextChoices):
        MISSING_INSIDE = "missing_inside"
        MISSING_OUTSIDE = "missing_outside"
        AMOUNT = "amount"
        POSITION = "position"

    id = models.BigAutoField(primary_key=True)
    reconciliation = models.ForeignKey(Reconciliation, on_delete=models.CASCADE, related_name="differences")
    rail = models.CharField(max_length=16)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    account_kind = models.CharField(max_length=24, choices=AccountKind.choices)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+")
    ref = models.CharField(max_length=200, blank=True)
    ledger = AmountField(default=0)  # by how much the mirror moved; below zero: it left
    outside = AmountField(default=0)
    explanation = models.CharField(max_length=200, blank=True)  # empty: nothing explains it

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["missing_inside", "missing_outside", "amount", "position"]),
                name="difference_kind_known",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.ref}: {self.ledger} here, {self.outside} outside ({self.explanation or 'why?'})"


class PayoutBreaker(models.Model):
    """While one is open, no payout is submitted. Deposits and jobs go on."""

    STATE_MACHINE = BREAKER_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    state = models.CharField(max_length=8, choices=BreakerState.choices, default=BreakerState.OPEN)
    cause = models.CharField(max_length=200)
    reconciliation = models.ForeignKey(
        Reconciliation, null=True, blank=True, on_delete=models.PROTECT, related_name="breakers"
    )
    opened_at = models.DateTimeField(default=clock.now)
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=120, blank=True)
    note = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["state"], condition=Q(state="open"), name="one_open_breaker"),
            models.CheckConstraint(condition=Q(state__in=["open", "closed"]), name="breaker_state_known"),
            models.CheckConstraint(
                condition=Q(state="open", closed_at=None) | (Q(state="closed", closed_at__isnull=False) & ~Q(note="")),
                name="breaker_closed_with_a_note",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.opened_at:%F %T} {self.cause} ({self.state})"
