"""What the chain told us, stored once before anything acts on it, and what we told it."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class ChainBlock(models.Model):
    """One block that we saw; several may share a number until one is final."""

    class State(models.TextChoices):
        SEEN = "seen"
        SAFE = "safe"
        FINAL = "final"
        ORPHANED = "orphaned"

    id = models.BigAutoField(primary_key=True)
    chain_id = models.PositiveBigIntegerField()
    number = models.PositiveBigIntegerField()
    hash = models.CharField(max_length=66)
    parent_hash = models.CharField(max_length=66)
    state = models.CharField(max_length=16, choices=State.choices, default=State.SEEN)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["chain_id", "hash"], name="chain_block_once"),
            models.UniqueConstraint(
                fields=["chain_id", "number"], condition=Q(state="final"), name="one_final_block_per_number"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["seen", "safe", "final", "orphaned"]), name="chain_block_state_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.chain_id}/{self.number} {self.hash} ({self.state})"


class ChainEvent(models.Model):
    """One log of our contract in one block; the same log in another block after a reorganisation is another row."""

    id = models.BigAutoField(primary_key=True)
    block = models.ForeignKey(ChainBlock, on_delete=models.PROTECT, related_name="events")
    tx_hash = models.CharField(max_length=66)
    log_index = models.PositiveIntegerField()
    contract = models.CharField(max_length=42)
    name = models.CharField(max_length=64)
    arguments: models.JSONField[Any, Any] = models.JSONField(default=dict)
    processed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tx_hash", "log_index", "block"], name="chain_event_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.tx_hash}#{self.log_index}"


class ChainTransaction(models.Model):
    """One transaction that we signed; its raw bytes are stored before they go out, so that a restart sends the same."""

    class State(models.TextChoices):
        PLANNED = "planned"
        NONCED = "nonced"
        SIGNED = "signed"
        BROADCAST = "broadcast"
        MINED = "mined"
        FINAL = "final"
        REPLACED = "replaced"
        REORGED = "reorged"
        REVERTED = "reverted"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    chain_id = models.PositiveBigIntegerField()
    signer = models.CharField(max_length=42)
    nonce = models.PositiveBigIntegerField(null=True, blank=True)
    raw = models.TextField(blank=True)
    hash = models.CharField(max_length=66, blank=True)
    fees: models.JSONField[Any, Any] = models.JSONField(default=dict)
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by")
    state = models.CharField(max_length=16, choices=State.choices, default=State.PLANNED)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["signer", "chain_id", "nonce", "hash"], name="chain_transaction_once"),
            models.UniqueConstraint(
                fields=["signer", "chain_id", "nonce"], condition=Q(state="final"), name="one_final_per_nonce"
            ),
            models.CheckConstraint(
                condition=Q(
                    state__in=[
                        "planned",
                        "nonced",
                        "signed",
                        "broadcast",
                        "mined",
                        "final",
                        "replaced",
                        "reorged",
                        "reverted",
                    ]
                ),
                name="chain_transaction_state_known",
            ),
            models.CheckConstraint(
                condition=Q(replaces=None) | ~Q(replaces=F("id")), name="chain_transaction_replaces_another"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.signer} nonce {self.nonce} ({self.state})"
