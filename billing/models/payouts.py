"""Money that leaves for providers."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.fields import AmountField
from billing.models.ledger import Asset, Transfer
from billing.states import PAYOUT_MACHINE, PayoutState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class Payout(models.Model):
    """Money that leaves for one provider through one rail."""

    STATE_MACHINE = PAYOUT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider_id = models.UUIDField(db_index=True)
    rail = models.CharField(max_length=16)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+")
    amount = AmountField()
    state = models.CharField(max_length=16, choices=PayoutState.choices, default=PayoutState.REQUESTED)
    destination = models.CharField(max_length=200)
    pending_transfer = models.OneToOneField(
        Transfer, null=True, blank=True, on_delete=models.PROTECT, related_name="payout"
    )
    external_id = models.CharField(max_length=200, blank=True)
    last_error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=clock.now)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=PayoutState.values), name="payout_state_known"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="payout_amount_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} to {self.provider_id} by {self.rail} ({self.state})"
