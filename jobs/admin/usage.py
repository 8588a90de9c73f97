"""Keys, and what was used with them."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.endpoints import keys, usage_statements
from jobs.models import (
    EndpointKey,
    KeySlice,
    LeaseStatement,
    LeaseUse,
    UsageAside,
    UsageDay,
    UsagePayment,
    UsageRecord,
    UsageRemainder,
)
from marketplace.foundation.admin import ReadOnlyAdmin


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
            count = usage_statements.settle_contested(statement.lease_id, actor=str(request.user))
            self.message_user(request, f"{statement.lease_id}: {count} shares", messages.SUCCESS)


admin.site.register([LeaseUse, UsageRemainder], ReadOnlyAdmin)
admin.site.register(KeySlice, ReadOnlyAdmin)
