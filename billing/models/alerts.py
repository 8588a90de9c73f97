"""Alerts to operators, each open while its cause lasts."""

from __future__ import annotations

from typing import Final

from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id

KEY_CHARACTERS_MAX: Final = 200
KIND_CHARACTERS_MAX: Final = 64


class Severity(models.TextChoices):
    """info: worth reading. warning: an operator has to act. critical: money does not move or is missing."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertQuerySet(models.QuerySet["Alert"]):
    def open(self) -> AlertQuerySet:
        """Alerts whose cause is not known to be gone."""
        return self.filter(closed_at=None)


class Alert(models.Model):
    """One thing that is wrong; while it is open there is one row for its key, however often it is noticed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    key = models.CharField(max_length=KEY_CHARACTERS_MAX)
    kind = models.CharField(max_length=KIND_CHARACTERS_MAX)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    subject = models.CharField(max_length=200, blank=True)  # the id, or the name, of what it is about
    message = models.TextField()
    noticed = models.PositiveIntegerField(default=1)
    opened_at = models.DateTimeField(default=clock.now)
    noticed_at = models.DateTimeField(default=clock.now)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=120, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    objects = AlertQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key"], condition=Q(closed_at=None), name="one_open_alert_per_key"),
            models.CheckConstraint(condition=Q(severity__in=Severity.values), name="alert_severity_known"),
            models.CheckConstraint(condition=~Q(key="") & ~Q(kind=""), name="alert_has_key_and_kind"),
        ]
        indexes = [models.Index(fields=["kind"], condition=Q(closed_at=None), name="alert_open_by_kind")]

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"
