"""What a token was worth, by whom, and when."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from billing.fields import AMOUNT_MAX, AmountField
from billing.models.ledger import Asset
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class PriceSource(models.TextChoices):
    """fixed: by configuration. operator: typed in. feeds: the median of several that agree."""

    FIXED = "fixed"
    OPERATOR = "operator"
    FEEDS = "feeds"


class TokenPrice(models.Model):
    """One observation of a token's price. Rows are added and never changed: a quote names the one it was made with."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="prices", db_index=False)
    usd_micros_per_token = AmountField()  # of one WHOLE token: the price itself is precise to a millionth of a dollar
    source = models.CharField(max_length=16, choices=PriceSource.choices)
    detail = models.CharField(max_length=400, blank=True)  # who typed it, or what each feed answered
    observed_at = models.DateTimeField(default=clock.now)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(usd_micros_per_token__gt=0, usd_micros_per_token__lte=AMOUNT_MAX),
                name="token_price_in_range",
            ),
            models.CheckConstraint(condition=Q(source__in=PriceSource.values), name="token_price_source_known"),
        ]
        indexes = [models.Index(fields=["asset", "-observed_at"], name="token_price_newest")]

    def __str__(self) -> str:
        return f"{self.asset_id}: {self.usd_micros_per_token} micro-USD ({self.source})"
