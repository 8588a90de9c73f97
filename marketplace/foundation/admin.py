"""Events and stored answers, to be read only; the outbox, to be tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db import DataError, models, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from marketplace.foundation import clock
from marketplace.foundation.errors import SoukError
from marketplace.foundation.models import Event, IdempotencyKey, OutboxMessage

if TYPE_CHECKING:
    AdminBase = admin.ModelAdmin[Any]
else:
    AdminBase = admin.ModelAdmin  # generic for the type checker only


class PlainAdmin(AdminBase):
    """Django's, where a filter in the address may hold any value."""

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """A value that the database does not read, such as a time at +16:00, is an invalid filter and no failure."""
        try:
            with transaction.atomic():
                return super().get_changelist_instance(request)
        except DataError as error:
            raise IncorrectLookupParameters from error


class ReadOnlyAdmin(PlainAdmin):
    """Shows, and changes nothing by a form: not even for a superuser.

    Its actions call functions of the apps. `permissions=["operate"]` asks for the right to change the model.
    """

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """An error after the form was checked, as when another operator was faster, is shown on the page."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except SoukError as error:
            messages.error(request, error.message)
            return redirect(request.path)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "subject_kind", "subject_id", "from_state", "to_state", "reason", "actor"]
    list_filter = ["subject_kind", "to_state", "reason"]
    search_fields = ["=subject_id", "=actor"]
    ordering = ["-id"]
    show_full_result_count = False


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "actor", "key", "route", "state", "status_code"]
    list_filter = ["state"]
    search_fields = ["=actor", "=key"]
    exclude = ["response_sealed", "request_hash"]
    ordering = ["-id"]
    show_full_result_count = False


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "kind", "business_key", "state", "attempts", "next_at", "last_error"]
    list_filter = ["kind", "state"]
    search_fields = ["=business_key", "=external_id"]
    ordering = ["-created_at"]
    actions = ["try_again"]

    @admin.action(description="Try the failed ones again", permissions=["operate"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        failed = queryset.filter(state=OutboxMessage.State.FAILED)
        count = failed.update(state=OutboxMessage.State.WAITING, attempts=0, next_at=clock.now())
        self.message_user(request, f"{count} will be tried again.")
