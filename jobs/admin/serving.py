"""Endpoints, their versions and replicas, the gateways, and answers that were computed again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from jobs import lifecycle
from jobs.endpoints import replicas
from jobs.models import (
    Audit,
    Endpoint,
    EndpointMinute,
    EndpointVersion,
    Gateway,
    Replica,
    ReplicaMinute,
    WrongReplica,
)
from marketplace.foundation.admin import ReadOnlyAdmin
from marketplace.foundation.errors import SoukError
from provider_agent.protocol import Reason

SECONDS_PER_MINUTE = 60
DRAINED_BY_OPERATOR = "operator"


class Verbs(ReadOnlyAdmin):
    """Pages with actions."""

    def each(self, request: HttpRequest, rows: QuerySet[Any], done: str, verb: Callable[[Any], Any]) -> None:
        """Call the verb for each row; a refusal is shown, and the next row follows."""
        for row in rows:
            try:
                verb(row)
            except SoukError as error:
                self.message_user(request, f"{row}: {error.message}", messages.ERROR)
            else:
                self.message_user(request, f"{row}: {done}", messages.SUCCESS)


@admin.register(Endpoint)
class EndpointAdmin(Verbs):
    list_display = ("model", "organisation", "is_open", "desired", "desired_why", "wanted_at", "created_at")
    list_filter = ("is_open",)
    search_fields = ("id", "job__id", "model", "organisation__name")
    list_select_related = ("organisation",)
    actions = ("end_endpoints",)

    @admin.action(description="End: cancel its job, stop its replicas, settle", permissions=["operate"])
    def end_endpoints(self, request: HttpRequest, queryset: QuerySet[Endpoint]) -> None:
        self.each(
            request,
            queryset,
            "is ending",
            lambda endpoint: lifecycle.cancel(
                endpoint.job_id, actor=str(request.user), reason=Reason.CANCELLED_BY_OPERATOR
            ),
        )


@admin.register(EndpointVersion)
class EndpointVersionAdmin(ReadOnlyAdmin):
    list_display = ("endpoint", "number", "state", "share", "reason", "created_at", "ended_at")
    list_filter = ("state",)
    search_fields = ("id", "endpoint__id", "endpoint__model")
    list_select_related = ("endpoint",)


@admin.register(Replica)
class ReplicaAdmin(Verbs):
    list_display = ("id", "endpoint", "version", "state", "reason", "is_on_demand", "ready_at", "seen_at", "ended_at")
    list_filter = ("state", "reason", "is_on_demand")
    search_fields = ("id", "endpoint__id", "endpoint__model", "attempt__id", "attempt__leases__node__name")
    list_select_related = ("endpoint", "version__endpoint")
    actions = ("drain_replicas",)

    @admin.action(description="Drain: no new requests; stopped once it has none left", permissions=["operate"])
    def drain_replicas(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        self.each(
            request,
            queryset.select_related("endpoint"),
            "drains",
            lambda replica: replicas.drain(replica, reason=DRAINED_BY_OPERATOR, actor=str(request.user)),
        )


@admin.register(Gateway)
class GatewayAdmin(ReadOnlyAdmin):
    list_display = ("id", "url", "seen_at", "usage_seq", "public_key")
    search_fields = ("id", "url", "public_key")


class MinuteAdmin(ReadOnlyAdmin):
    """Rows of one minute each."""

    ordering = ("-minute",)
    show_full_result_count = False

    @admin.display(description="at", ordering="minute")
    def at(self, row: Model) -> datetime:
        """The minute's beginning."""
        return datetime.fromtimestamp(row.minute * SECONDS_PER_MINUTE, UTC)  # type: ignore[attr-defined]


@admin.register(EndpointMinute)
class EndpointMinuteAdmin(MinuteAdmin):
    list_display = ("at", "endpoint", "arrived", "served", "failed", "need_max", "desired")
    search_fields = ("endpoint__id", "endpoint__model")
    list_select_related = ("endpoint",)


@admin.register(ReplicaMinute)
class ReplicaMinuteAdmin(MinuteAdmin):
    list_display = ("at", "replica_id", "served", "failed", "output_tokens")
    search_fields = ("replica__id", "replica__endpoint__model")


@admin.register(Audit)
class AuditAdmin(ReadOnlyAdmin):
    list_display = ("at", "verdict", "endpoint", "lease_id", "checked_by_id", "detail")
    list_filter = ("verdict",)
    search_fields = ("request_id", "endpoint__id", "lease__id", "checked_by__id")
    list_select_related = ("endpoint",)


@admin.register(WrongReplica)
class WrongReplicaAdmin(ReadOnlyAdmin):
    list_display = ("lease_id", "node", "because", "created_at")
    search_fields = ("lease__id", "node__name")
    list_select_related = ("node",)
