"""What Stripe told us, stored once before anything acts on it."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock


class StripeEvent(models.Model):
    """One webhook event; its id makes a repeated delivery harmless."""

    event_id = models.CharField(primary_key=True, max_length=255)
    type = models.CharField(max_length=120)
    account = models.CharField(max_length=255, blank=True)
    created = models.DateTimeField()
    payload: models.JSONField[Any, Any] = models.JSONField()
    received_at = models.DateTimeField(default=clock.now)
    processed_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["received_at"], condition=Q(processed_at=None), name="stripe_event_unprocessed")
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"
