"""What organisations may keep, where it is not the default."""

from __future__ import annotations

from django.contrib import admin

from jobs.models import StorageQuota
from marketplace.foundation.admin import PlainAdmin


@admin.register(StorageQuota)
class StorageQuotaAdmin(PlainAdmin):
    list_display = ("organisation", "bytes_max")
    search_fields = ("organisation__name",)
    autocomplete_fields = ("organisation",)
