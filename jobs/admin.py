"""The operator's view of demand: everything to be seen, states moved only by the verbs."""

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
    EndpointKey,
    Job,
    Lease,
    LeaseDevice,
    LeaseStatement,
    LeaseUse,
    Quote,
    StreamChunk,
    UsageAside,
    UsageDay,
    UsagePayment,
    UsageRecord,
)
from jobs.serving import keys, statements
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
    fields = readonly_fields = ("node", "node_rank", "state", "reported_state", "billable_ms", "charge_usd_micros")

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


@admin.register(EndpointKey)
class EndpointKeyAdmin(ReadOnlyAdmin):
    list_display = ("name", "prefix", "organisation", "kind", "spent_usd_micros", "budget_usd_micros", "revoked_at")
    list_filter = ("kind", "budget_period")
    search_fields = ("id", "name", "prefix", "organisation__name")
    exclude = ("key_hash",)
    actions = ("revoke_keys",)

    @admin.action(description="Revoke: gateways refuse it from their next sync on")
    def revoke_keys(self, request: HttpRequest, queryset: QuerySet[EndpointKey]) -> None:
        for key in queryset.select_related("organisation"):
            keys.revoke(key.pk, organisation=key.organisation)
            self.message_user(request, f"{key.name}: revoked", messages.SUCCESS)


@admin.register(UsageDay)
class UsageDayAdmin(ReadOnlyAdmin):
    list_display = ("day", "organisation_id", "model", "requests", "input_tokens", "output_tokens", "cost_usd_micros")
    list_filter = ("day", "model")
    search_fields = ("organisation_id", "owner_id", "endpoint_id", "key_id")


@admin.register(UsageRecord)
class UsageRecordAdmin(ReadOnlyAdmin):
    list_display = ("at", "organisation_id", "model", "status", "input_tokens", "output_tokens", "cost_usd_micros")
    list_filter = ("status", "kind")
    search_fields = ("request_id", "organisation_id", "endpoint_id", "lease_id", "key_id")


@admin.register(UsageAside)
class UsageAsideAdmin(ReadOnlyAdmin):
    list_display = ("received_at", "gateway_id", "seq", "why")
    list_filter = ("why",)


@admin.register(UsagePayment)
class UsagePaymentAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "payer_id", "owner_id", "records", "charged_usd_micros", "fee_usd_micros")
    search_fields = ("id", "payer_id", "owner_id", "endpoint_id")


@admin.register(LeaseStatement)
class LeaseStatementAdmin(ReadOnlyAdmin):
    list_display = ("lease_id", "seq", "requests", "input_tokens", "output_tokens", "received_at")
    search_fields = ("lease_id",)
    actions = ("let_pay_go",)

    @admin.action(description="Let the pay go that is held back because the counts differ")
    def let_pay_go(self, request: HttpRequest, queryset: QuerySet[LeaseStatement]) -> None:
        for statement in queryset:
            count = statements.settle_contested(statement.lease_id, actor=str(request.user))
            self.message_user(request, f"{statement.lease_id}: {count} shares", messages.SUCCESS)


admin.site.register(LeaseUse, ReadOnlyAdmin)
admin.site.register(ArtifactPart, ReadOnlyAdmin)
admin.site.register(LeaseDevice, ReadOnlyAdmin)
