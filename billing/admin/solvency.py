"""Sealed solvency reports; never the secret of a report, by which a leaf could be linked to its owner."""

from __future__ import annotations

from django.contrib import admin

from billing.models import SolvencyChunk, SolvencyReport
from marketplace.foundation.admin import ReadOnlyAdmin


@admin.register(SolvencyReport)
class SolvencyReportAdmin(ReadOnlyAdmin):
    list_display = ["number", "at", "last_seq", "commitment", "is_daily"]
    exclude = ["secret"]


@admin.register(SolvencyChunk)
class SolvencyChunkAdmin(ReadOnlyAdmin):
    list_display = ["report", "asset", "number", "sum"]
    list_select_related = ["report", "asset"]
    exclude = ["leaves", "first_owner", "hash"]
