"""Invoices: what an organisation was charged in a month, numbered without gaps, never changed once issued."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q

from billing.fields import AmountField
from billing.models.ledger import Asset
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class BillingDetails(models.Model):
    """The customer's details on invoices; tax as the operator's accountant set it."""

    owner_id = models.UUIDField(primary_key=True)
    name = models.CharField(max_length=200, blank=True)
    address = models.TextField(blank=True)
    country = models.CharField(max_length=2, blank=True)
    tax_id = models.CharField(max_length=40, blank=True)
    tax_bps = models.PositiveIntegerField(default=0)  # contained in what is charged, so that no balance changes
    tax_note = models.CharField(max_length=200, blank=True)  # such as "Reverse charge"

    class Meta:
        verbose_name_plural = "billing details"
        constraints = [models.CheckConstraint(condition=Q(tax_bps__lte=10_000), name="tax_bps_range")]

    def __str__(self) -> str:
        return self.name or str(self.owner_id)


class InvoiceCounter(models.Model):
    """The last number of a year; its row is locked while the next is given."""

    year = models.PositiveIntegerField(primary_key=True)
    last = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.year}: {self.last}"


class Invoice(models.Model):
    """One month of one organisation in one asset, or a credit note to an earlier one."""

    class Kind(models.TextChoices):
        INVOICE = "invoice"
        CREDIT_NOTE = "credit_note"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    year = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.INVOICE)
    credits = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="credit_notes")
    owner_id = models.UUIDField(db_index=True)
    month = models.DateField()  # its first day
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    buyer: models.JSONField[Any, Any] = models.JSONField(default=dict)
    seller: models.JSONField[Any, Any] = models.JSONField(default=dict)
    lines: models.JSONField[Any, Any] = models.JSONField(default=list)  # [{"job_id", "what", "amount", "at"}]
    charged = AmountField()  # what jobs cost
    refunded = AmountField()  # what of it came back
    total = AmountField()  # charged - refunded, tax included
    tax_bps = models.PositiveIntegerField()
    tax = AmountField()  # contained in the total
    topped_up = AmountField(default=0)  # money that came in: for information
    given = AmountField(default=0)  # credit that was given
    issued_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["year", "number"], name="invoice_number_once"),
            models.UniqueConstraint(
                fields=["owner_id", "month", "asset"], condition=Q(kind="invoice"), name="one_invoice_a_month"
            ),
            models.UniqueConstraint(
                fields=["credits", "month"], condition=Q(kind="credit_note"), name="one_credit_note_a_month"
            ),
            models.CheckConstraint(condition=Q(kind__in=["invoice", "credit_note"]), name="invoice_kind_known"),
            models.CheckConstraint(
                condition=Q(kind="invoice", credits=None) | Q(kind="credit_note", credits__isnull=False),
                name="credit_note_names_its_invoice",
            ),
            models.CheckConstraint(condition=Q(total=F("charged") - F("refunded")), name="invoice_adds_up"),
            models.CheckConstraint(condition=Q(number__gte=1), name="invoice_numbers_from_one"),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The number that people quote: 2026-000041."""
        return f"{self.year}-{self.number:06d}"
