"""What organisations may keep, where it is not the default, what they paid for it, and where the second copies are."""

from __future__ import annotations

from django.contrib import admin

from jobs.models import ArtifactCopy, StorageCharge, StorageQuota
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


@admin.register(ArtifactCopy)
class ArtifactCopyAdmin(ReadOnlyAdmin):
    list_display = ("artifact_id", "store", "copied_at", "tries", "next_try_at", "is_damaged", "repaired_files")
    list_filter = ("store", "is_damaged", ("copied_at", admin.EmptyFieldListFilter))
    search_fields = ("artifact__id", "artifact__job__id", "artifact__organisation__name")
    date_hierarchy = "copied_at"
