"""Corrections of the ledger: proposed by one person, approved by another, posted with the approval."""

from __future__ import annotations

from typing import Final

from django.db import models
from django.db.models import F, Q

from billing.account_kinds import AccountKind
from billing.fields import AmountField
from billing.models.ledger import Asset
from billing.models.reconciliation import Reconciliation
from billing.states import CORRECTION_MACHINE, CorrectionState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id

OWN_REF: Final = "correction:"  # no movement outside has such a reference


class LedgerCorrection(models.Model):
    """What makes one difference of a reconciliation disappear: `amount` on the mirror, and what it comes from."""

    STATE_MACHINE = CORRECTION_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    state = models.CharField(max_length=8, choices=CorrectionState.choices, default=CorrectionState.PROPOSED)
    rail = models.CharField(max_length=16)
    mirror = models.CharField(max_length=24, choices=AccountKind.choices)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    ref = models.CharField(max_length=200, blank=True)  # of the difference; empty: of a sum that has none
    amount = AmountField()  # by how much the mirror grows; below zero: it shrinks
    against = models.CharField(max_length=24, choices=AccountKind.choices)
    owner_id = models.UUIDField(null=True, blank=True)  # of the account against which it is booked
    why = models.TextField()
    report = models.ForeignKey(Reconciliation, on_delete=models.PROTECT, related_name="+", db_index=False)
    proposer_id = models.UUIDField()
    proposed_by = models.CharField(max_length=254)
    proposed_at = models.DateTimeField(default=clock.now)
    decider_id = models.UUIDField(null=True, blank=True)
    decided_by = models.CharField(max_length=254, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=CorrectionState.values), name="correction_state_known"),
            models.CheckConstraint(condition=~Q(amount=0) & ~Q(why=""), name="correction_says_how_much_and_why"),
            models.CheckConstraint(
                condition=Q(state="proposed", decider_id=None, decided_at=None)
                | (~Q(state="proposed") & Q(decider_id__isnull=False, decided_at__isnull=False)),
                name="correction_decided_by_somebody",
            ),
            models.CheckConstraint(
                condition=~Q(state="approved") | ~Q(decider_id=F("proposer_id")), name="correction_approved_by_another"
            ),
            models.UniqueConstraint(
                fields=["rail", "mirror", "asset", "ref"],
                condition=Q(state="proposed"),
                name="one_open_correction_of_a_difference",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.ref or self.mirror}: {self.amount} against {self.against} ({self.state})"

    @property
    def booked_ref(self) -> str:
        """What the ledger's transfer is called: the outside's name for it, or our own where there is none."""
        return self.ref or f"{OWN_REF}{self.pk}"
