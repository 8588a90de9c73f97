"""What organisations may keep, where it is not the default, and what they paid for it."""

from __future__ import annotations

from django.contrib import admin

from jobs.models import StorageCharge, StorageQuota
from marketplace.foundation.admin import PlainAdmin, ReadOnlyAdmin


@admin.register(StorageQuota)
class StorageQuotaAdmin(PlainAdmin):
    list_display = ("organisation", "bytes_max")
    search_fields = ("organisation__name",)
    autocomplete_fields = ("organisation",)


@admin.register(StorageCharge)
class StorageChargeAdmin(ReadOnlyAdmin):
    list_display = ("day", "organisation", "kept_bytes", "due_usd_micros", "charged_usd_micros", "is_paid")
    list_filter = ("is_paid",)
    search_fields = ("id", "organisation__name")
    date_hierarchy = "day"
