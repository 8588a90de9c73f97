"""What offences take from collateral that lies in a contract."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models.chain import ChainTransaction, EscrowContract
from billing.models.disputes import Offence
from billing.states.chain import STAKE_SLASH_MACHINE, StakeSlashState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class StakeSlash(models.Model):
    """What one offence takes of one wallet's stake; the contract knows the offence by the same id, and takes once."""

    STATE_MACHINE = STAKE_SLASH_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    offence = models.ForeignKey(Offence, on_delete=models.PROTECT, related_name="slashes")
    contract = models.ForeignKey(EscrowContract, on_delete=models.PROTECT, related_name="slashes")
    wallet = models.CharField(max_length=42)
    owed = AmountField()  # what the ledger did not have of the penalty, in the offence's asset
    wanted = AmountField()  # the same in the token, at the prices below
    prices: models.JSONField[Any, Any] = models.JSONField(default=list, blank=True)  # empty: one and the same asset
    evidence_hash = models.CharField(max_length=66)
    customer = models.CharField(max_length=42, blank=True)  # the wallet that is compensated, where one is known
    customer_bps = models.PositiveIntegerField(default=0)  # of what is slashed, to the customer
    slashed = AmountField(default=0)
    compensated = AmountField(default=0)
    state = models.CharField(max_length=16, choices=StakeSlashState.choices, default=StakeSlashState.WAITING)
    reason = models.CharField(max_length=200, blank=True)
    transaction = models.ForeignKey(
        ChainTransaction, null=True, blank=True, on_delete=models.PROTECT, related_name="stake_slashes"
    )
    next_at = models.DateTimeField(default=clock.now)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        verbose_name_plural = "stake slashes"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=StakeSlashState.values), name="stake_slash_state_known"),
            models.UniqueConstraint(fields=["offence", "contract"], name="stake_slash_once_per_offence"),
            models.CheckConstraint(
                condition=Q(owed__gt=0, wanted__gt=0, slashed__gte=0, compensated__gte=0, customer_bps__lte=10_000),
                name="stake_slash_amounts",
            ),
            models.CheckConstraint(condition=Q(compensated__lte=F("slashed")), name="stake_slash_compensates_its_own"),
        ]
        indexes = [
            models.Index(
                fields=["next_at"], condition=Q(state__in=["waiting", "sent", "slashed"]), name="stake_slash_live"
            )
        ]

    def __str__(self) -> str:
        return f"{self.wanted} of {self.wallet} for {self.offence_id} ({self.state})"
