"""Blocks and events of a chain, stored once before anything acts on them, and the transactions that we send."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models.ledger import Asset
from billing.states.chain import TRANSACTION_MACHINE, TransactionState
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class EscrowContract(models.Model):
    """The one contract that holds a token for us. Its constants were read from the chain."""

    asset = models.OneToOneField(Asset, primary_key=True, on_delete=models.PROTECT, related_name="escrow")
    chain_id = models.PositiveBigIntegerField()
    address = models.CharField(max_length=42)
    deployed_block = models.PositiveBigIntegerField()
    code_hash = models.CharField(max_length=66)
    scanned_block = models.PositiveBigIntegerField()  # the events of every final block up to it are stored
    fee_recipient = models.CharField(max_length=42)
    registered_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain_id", "address"], name="escrow_contract_once")]

    def __str__(self) -> str:
        return f"{self.asset_id} {self.chain_id}/{self.address}"


class ChainBlock(models.Model):
    """One block that we saw; several may share a number until one is final.

    Its state is an observation, not a decision: only the indexer writes it, and an orphan may come back.
    """

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
    mined_at = models.DateTimeField(default=clock.now)

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
        indexes = [models.Index(fields=["chain_id", "number"], name="chain_block_of_number")]

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
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tx_hash", "log_index", "block"], name="chain_event_once"),
        ]
        indexes = [models.Index(fields=["block"], condition=Q(processed_at=None), name="chain_event_waiting")]

    def __str__(self) -> str:
        return f"{self.name} {self.tx_hash}#{self.log_index}"

    @property
    def reference(self) -> str:
        """What the transfers that it caused are called by: chain id, transaction, log index."""
        return f"{self.block.chain_id}:{self.tx_hash}:{self.log_index}"


class Signer(models.Model):
    """One key of ours on one chain, and the nonce that its next transaction takes."""

    address = models.CharField(max_length=42)
    chain_id = models.PositiveBigIntegerField()
    next_nonce = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["address", "chain_id"], name="signer_once")]

    def __str__(self) -> str:
        return f"{self.chain_id}/{self.address} next {self.next_nonce}"


class ChainTransaction(models.Model):
    """One transaction that we signed; its raw bytes are stored before they go out, so that a restart sends the same.

    It is written in the transaction of the decision, like a call in the outbox, and its `business_key` makes it once.
    """

    STATE_MACHINE = TRANSACTION_MACHINE
    State = TransactionState

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    business_key = models.CharField(max_length=200, null=True, unique=True)  # noqa: DJ001  a replacement has none
    purpose = models.CharField(max_length=32, blank=True)  # the contract's function
    chain_id = models.PositiveBigIntegerField()
    signer = models.CharField(max_length=42)
    to = models.CharField(max_length=42, blank=True)
    data = models.TextField(blank=True)  # 0x-hex
    gas = models.PositiveBigIntegerField(default=0)  # limit
    nonce = models.PositiveBigIntegerField(null=True, blank=True)
    raw = models.TextField(blank=True)
    hash = models.CharField(max_length=66, blank=True)
    fees: models.JSONField[Any, Any] = models.JSONField(default=dict)
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by")
    state = models.CharField(max_length=16, choices=TransactionState.choices, default=TransactionState.PLANNED)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(default=clock.now)
    sent_at = models.DateTimeField(null=True, blank=True)  # the newest broadcast
    block_number = models.PositiveBigIntegerField(null=True, blank=True)
    block_hash = models.CharField(max_length=66, blank=True)
    gas_cost = AmountField(default=0)  # in the chain's own coin, known when it is final
    last_error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["signer", "chain_id", "nonce", "hash"], name="chain_transaction_once"),
            models.UniqueConstraint(
                fields=["signer", "chain_id", "nonce"],
                condition=Q(state__in=["final", "reverted"]),
                name="one_final_per_nonce",
            ),
            models.CheckConstraint(
                condition=Q(state__in=TransactionState.values), name="chain_transaction_state_known"
            ),
            models.CheckConstraint(
                condition=Q(replaces=None) | ~Q(replaces=F("id")), name="chain_transaction_replaces_another"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["planned", "refused"], nonce=None)
                | (~Q(state__in=["planned", "refused"]) & Q(nonce__isnull=False)),
                name="chain_transaction_sent_has_nonce",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["planned", "refused", "nonced"]) | (~Q(raw="") & ~Q(hash="")),
                name="chain_transaction_signed_has_bytes",
            ),
        ]
        indexes = [
            models.Index(
                fields=["chain_id", "signer", "created_at"],
                condition=~Q(state__in=["final", "reverted", "replaced", "refused"]),
                name="chain_transaction_live",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.purpose} by {self.signer} nonce {self.nonce} ({self.state})"
