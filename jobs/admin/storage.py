"""What organisations may keep, where it is not the default, and what they paid for it; where the second copies are, and
what jobs take from earlier ones; volumes."""

from __future__ import annotations

from django.contrib import admin

from jobs.models import ArtifactCopy, JobInput, StorageCharge, StorageQuota, Volume, VolumeVersion
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


@admin.register(JobInput)
class JobInputAdmin(ReadOnlyAdmin):
    list_display = ("job_id", "folder", "artifact_id")
    search_fields = ("job__id", "artifact__id", "artifact__job__id", "job__organisation__name")


@admin.register(Volume)
class VolumeAdmin(ReadOnlyAdmin):
    list_display = ("name", "organisation", "created_at")
    search_fields = ("id", "name", "organisation__name")
    date_hierarchy = "created_at"


@admin.register(VolumeVersion)
class VolumeVersionAdmin(ReadOnlyAdmin):
    list_display = ("volume", "number", "artifact_id", "created_at", "superseded_at")
    list_filter = (("superseded_at", admin.EmptyFieldListFilter),)
    search_fields = ("artifact__id", "volume__name", "volume__organisation__name")
    date_hierarchy = "created_at"
