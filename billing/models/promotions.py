"""Given credit: spent before money, never paid out, gone when it expires."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Upper

from billing.fields import AmountField
from billing.models.ledger import Asset
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class PromoCode(models.Model):
    """A word that turns into credit, a limited number of times."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    code = models.CharField(max_length=40, unique=True)  # always in upper case
    amount = AmountField(help_text="In micro-USD: 1 dollar is 1000000.")
    uses_max = models.PositiveIntegerField()
    uses_per_organisation_max = models.PositiveIntegerField(default=1)
    valid_days = models.PositiveIntegerField(default=90, help_text="How long the credit lasts once it is given.")
    valid_until = models.DateTimeField(help_text="After this nobody can use the code.")
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(code=Upper("code")) & ~Q(code=""), name="promo_code_in_upper_case"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="promo_code_amount_positive"),
        ]

    def __str__(self) -> str:
        return self.code


class PromotionGrant(models.Model):
    """Credit given to one owner. `left` of all its grants is what its account of this kind holds."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner_id = models.UUIDField()
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = AmountField()
    left = AmountField()
    code = models.ForeignKey(PromoCode, null=True, blank=True, on_delete=models.PROTECT, related_name="grants")
    reference = models.CharField(max_length=200, unique=True)  # makes a repeated gift harmless
    actor = models.CharField(max_length=120)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(amount__gt=0, left__gte=0) & Q(left__lte=F("amount")), name="grant_left_within_amount"
            ),
        ]
        indexes = [
            models.Index(fields=["owner_id", "expires_at"], condition=Q(left__gt=0), name="grant_with_something_left"),
            models.Index(fields=["expires_at"], condition=Q(left__gt=0), name="grant_to_expire"),
        ]

    def __str__(self) -> str:
        return f"{self.left} of {self.amount} for {self.owner_id}"


class PromotionDraw(models.Model):
    """What one job took from one grant, and how much of that came back."""

    id = models.BigAutoField(primary_key=True)
    grant = models.ForeignKey(PromotionGrant, on_delete=models.PROTECT, related_name="draws")
    job_id = models.UUIDField(db_index=True)
    amount = AmountField()
    returned = AmountField(default=0)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(amount__gt=0, returned__gte=0) & Q(returned__lte=F("amount")),
                name="draw_returns_at_most_all",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} for job {self.job_id}, {self.returned} back"
