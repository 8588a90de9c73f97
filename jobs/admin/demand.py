"""Quotes, jobs and what they became: states moved only by the verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs import lifecycle
from jobs.models import (
    Artifact,
    ArtifactPart,
    Attempt,
    Curve,
    CurvePoint,
    FollowingEvaluation,
    Job,
    Lease,
    LeaseDevice,
    PlanCheck,
    PriceHalt,
    PriceLock,
    Quote,
    ReceiptDelegation,
    StreamChunk,
)
from marketplace.foundation.admin import ReadOnlyAdmin
from marketplace.foundation.errors import SoukError
from provider_agent.protocol import Reason


class AttemptInline(admin.TabularInline[Attempt, Job]):
    model = Attempt
    fk_name = "job"
    extra = 0
    can_delete = False
    show_change_link = True
    fields = readonly_fields = ("number", "state", "reason", "fault", "message", "running_at", "ended_at")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class LeaseInline(admin.TabularInline[Lease, Attempt]):
    model = Lease
    extra = 0
    can_delete = False
    show_change_link = True
    fields = readonly_fields = (
        *("node", "node_rank", "is_joining", "joined_generation"),
        *("state", "reported_state", "billable_ms", "charge_usd_micros"),
    )

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("name", "organisation", "state", "reason", "cap_usd_micros", "created_at", "ended_at")
    list_filter = ("state", "kind", "reason")
    search_fields = ("id", "name", "organisation__name")
    date_hierarchy = "created_at"
    exclude = ("sealed_secrets",)
    inlines = (AttemptInline,)
    actions = ("cancel_jobs", "retry_jobs")

    @admin.action(description="Cancel: stop on its nodes, settle")
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._each(
            request,
            queryset,
            "cancelled",
            lambda job: lifecycle.cancel(job.pk, actor=str(request.user), reason=Reason.CANCELLED_BY_OPERATOR),
        )

    @admin.action(description="Retry: submit again under a fresh quote")
    def retry_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._each(
            request, queryset, "submitted again", lambda job: lifecycle.resubmit(job.pk, actor=str(request.user))
        )

    def _each(self, request: HttpRequest, jobs: QuerySet[Job], done: str, verb: Callable[[Job], Any]) -> None:
        for job in jobs:
            try:
                verb(job)
            except SoukError as error:
                self.message_user(request, f"{job.name}: {error.message}", messages.ERROR)
            else:
                self.message_user(request, f"{job.name}: {done}", messages.SUCCESS)


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    list_display = ("job", "number", "state", "reason", "fault", "created_at", "ended_at")
    list_filter = ("state", "reason", "fault")
    search_fields = ("id", "job__id", "job__name")
    inlines = (LeaseInline,)


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    list_display = ("id", "node", "attempt", "state", "reported_state", "rate_usd_micros_per_hour", "charge_usd_micros")
    list_filter = ("state", "reported_state")
    search_fields = ("id", "node__name", "attempt__job__name")


@admin.register(Quote)
class QuoteAdmin(ReadOnlyAdmin):
    list_display = ("id", "organisation", "expected_usd_micros", "cap_usd_micros", "created_at", "expires_at")
    search_fields = ("id", "organisation__name")


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ("id", "job", "kind", "step", "state", "size_bytes", "completed_at")
    list_filter = ("kind", "state")
    search_fields = ("id", "job__id", "job__name")


@admin.register(StreamChunk)
class StreamChunkAdmin(ReadOnlyAdmin):
    list_display = ("lease", "stream", "offset", "created_at")
    list_filter = ("stream",)
    exclude = ("data",)


@admin.register(Curve)
class CurveAdmin(ReadOnlyAdmin):
    list_display = ("job", "attempt", "stride", "point_count", "has_more_names")
    search_fields = ("job__id", "job__name")


@admin.register(CurvePoint)
class CurvePointAdmin(ReadOnlyAdmin):
    list_display = ("curve", "attempt", "first_step", "last_step")
    search_fields = ("curve__job__id",)


@admin.register(FollowingEvaluation)
class FollowingEvaluationAdmin(ReadOnlyAdmin):
    list_display = ("training", "job", "tries", "next_try_at", "why_not")
    search_fields = ("training__id", "training__name", "job__id")
    list_select_related = ("training", "job")


@admin.register(PriceLock)
class PriceLockAdmin(ReadOnlyAdmin):
    list_display = ("job", "number", "source", "observed_at", "reason", "actor", "charged_usd_micros")
    list_filter = ("reason",)
    search_fields = ("id", "job__id", "job__name")
    list_select_related = ("job",)


@admin.register(PriceHalt)
class PriceHaltAdmin(ReadOnlyAdmin):
    list_display = ("job", "source", "observed_at", "created_at")
    search_fields = ("job__id", "job__name")
    list_select_related = ("job",)


@admin.register(ReceiptDelegation)
class ReceiptDelegationAdmin(ReadOnlyAdmin):
    list_display = ("node", "chain_id", "contract", "wallet", "not_after", "revoked_at")
    search_fields = ("id", "node__name", "wallet", "receipt_address")
    list_select_related = ("node",)


admin.site.register(ArtifactPart, ReadOnlyAdmin)
admin.site.register(LeaseDevice, ReadOnlyAdmin)


@admin.register(PlanCheck)
class PlanCheckAdmin(ReadOnlyAdmin):
    list_display = (
        "ended_at",
        "device_model",
        "family",
        "parameters",
        "method",
        "ranks",
        "planned_peak_bytes",
        "measured_peak_bytes",
        "planned_seconds",
        "measured_seconds",
        "why",
    )
    list_filter = ("device_kind", "method", "is_own")
    search_fields = ("job__id", "organisation__name", "device_model")
    date_hierarchy = "ended_at"
