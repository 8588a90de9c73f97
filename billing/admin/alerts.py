"""The operator's list of what is wrong."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest

from billing.models import Alert
from billing.notices import alerts
from marketplace.foundation.admin import ReadOnlyAdmin


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    list_display = ["opened_at", "severity", "kind", "subject", "message", "noticed", "acknowledged_by", "closed_at"]
    list_filter = [("closed_at", admin.EmptyFieldListFilter), "severity", "kind"]
    search_fields = ["key", "subject", "message"]
    ordering = ["-opened_at"]
    actions = ["acknowledge", "close"]

    @admin.action(description="Acknowledge: I look after it", permissions=["operate"])
    def acknowledge(self, request: HttpRequest, chosen: models.QuerySet[Alert]) -> None:
        for alert in chosen:
            alerts.acknowledge(alert.pk, actor=str(request.user))
            self.log_change(request, alert, "acknowledged")
        messages.success(request, f"{len(chosen)} alerts acknowledged.")

    @admin.action(description="Close: its cause is gone", permissions=["operate"])
    def close(self, request: HttpRequest, chosen: models.QuerySet[Alert]) -> None:
        closed = [alert for alert in chosen if alerts.close(alert.key)]
        for alert in closed:
            self.log_change(request, alert, "closed")
        messages.success(request, f"{len(closed)} alerts closed.")
