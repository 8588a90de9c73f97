"""Whose receipts a contract accepts: a payout wallet's delegation to a node's key."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.fields import AmountField
from billing.models import Asset
from billing.proofs.escrow import ReceiptKeyDelegation, SignedDelegation
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.nodes.models import Node


class ReceiptDelegation(models.Model):
    """A payout wallet's signed delegation: a node's receipt key may sign for it on one contract, until a time."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="delegations")
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    chain_id = models.PositiveBigIntegerField()
    contract = models.CharField(max_length=42)
    wallet = models.CharField(max_length=42)
    receipt_address = models.CharField(max_length=42)
    not_after = models.DateTimeField()
    nonce = AmountField()
    signature = models.CharField(max_length=132)
    created_by = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=clock.now)
    told_at = models.DateTimeField(null=True, blank=True)  # when its registration with the contract was planned
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["chain_id", "contract", "wallet", "nonce"], name="delegation_nonce_once"),
            models.UniqueConstraint(
                fields=["node", "asset"], condition=Q(revoked_at=None), name="one_delegation_per_node_and_asset"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.wallet} by {self.receipt_address} until {self.not_after}"

    def as_signed(self) -> SignedDelegation:
        """What the wallet signed."""
        said = ReceiptKeyDelegation(
            provider=self.wallet,
            receipt_key=self.receipt_address,
            not_after=int(self.not_after.timestamp()),
            nonce=int(self.nonce),
        )
        return SignedDelegation(delegation=said, signature=self.signature)
