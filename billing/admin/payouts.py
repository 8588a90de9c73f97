"""The operator's view of payouts and reconciliation. One thing can be done: close the breaker, with a note."""

from __future__ import annotations

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from billing.breaker import close_breaker
from billing.models import (
    BankLeg,
    Difference,
    FakeMovement,
    Payout,
    PayoutBreaker,
    PayoutSettings,
    Position,
    Reconciliation,
    ReserveSlice,
)
from billing.payouts import bank_legs
from billing.states import BreakerState
from marketplace.foundation.admin import ReadOnlyAdmin
from marketplace.foundation.errors import SoukError

NOTE_CHARACTERS_MAX = 2_000


@admin.register(Payout)
class PayoutAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "provider_id", "rail", "asset", "shown_amount", "state", "external_id", "last_error"]
    list_filter = ["state", "rail", "asset"]
    search_fields = ["=id", "=provider_id", "=external_id"]
    list_select_related = ["asset"]

    @admin.display(description="amount")
    def shown_amount(self, payout: Payout) -> str:
        return payout.asset.show(payout.amount)


@admin.register(BankLeg)
class BankLegAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "payout", "state", "bank_payout_id", "tries", "next_at", "message"]
    list_filter = ["state"]
    search_fields = ["=payout__id", "=payout__provider_id", "=bank_payout_id"]
    list_select_related = ["payout"]
    actions = ["try_again"]

    @admin.action(description="Try again at the next look", permissions=["operate"])
    def try_again(self, request: HttpRequest, chosen: QuerySet[BankLeg]) -> None:
        count = bank_legs.try_again(chosen.values_list("pk", flat=True))
        for leg in chosen:
            self.log_change(request, leg, "to be tried again")
        messages.success(request, f"{count} are tried again within minutes.")


@admin.register(PayoutSettings)
class PayoutSettingsAdmin(ReadOnlyAdmin):
    list_display = ["provider_id", "asset", "rail", "schedule", "due_at", "failures", "last_error", "next_from"]
    list_filter = ["rail", "schedule"]
    search_fields = ["=provider_id", "=destination"]


@admin.register(ReserveSlice)
class ReserveSliceAdmin(ReadOnlyAdmin):
    list_display = ["share", "provider_id", "amount", "release_at", "released_at", "released"]
    search_fields = ["=provider_id"]


class PositionInline(admin.TabularInline[Position, Reconciliation]):
    model = Position
    extra = 0
    can_delete = False


class DifferenceInline(admin.TabularInline[Difference, Reconciliation]):
    model = Difference
    extra = 0
    can_delete = False


@admin.register(Reconciliation)
class ReconciliationAdmin(ReadOnlyAdmin):
    list_display = ["started_at", "reason", "unexplained", "unanswered"]
    list_filter = ["reason"]
    inlines = [PositionInline, DifferenceInline]


class NoteForm(forms.Form):
    """Why payouts may continue."""

    note = forms.CharField(
        widget=forms.Textarea,
        max_length=NOTE_CHARACTERS_MAX,
        help_text="What the difference was, and why payouts may go on. Kept for good.",
    )


@admin.register(PayoutBreaker)
class PayoutBreakerAdmin(ReadOnlyAdmin):
    list_display = ["opened_at", "state", "cause", "closed_at", "closed_by", "note"]
    list_filter = ["state"]
    actions = ["close"]

    @admin.action(description="Let payouts go on (asks for a note)", permissions=["operate"])
    def close(self, request: HttpRequest, chosen: QuerySet[PayoutBreaker]) -> HttpResponse | None:
        form = NoteForm(request.POST if "note" in request.POST else None)
        if not form.is_valid():
            return render(
                request,
                "billing/close_breaker.html",
                {
                    **self.admin_site.each_context(request),
                    "form": form,
                    "chosen": chosen,
                    "checkbox": ACTION_CHECKBOX_NAME,
                    "title": "Let payouts go on",
                },
            )
        for breaker in chosen.filter(state=BreakerState.OPEN):
            try:
                close_breaker(breaker, actor=str(request.user), note=form.cleaned_data["note"])
            except SoukError as error:
                messages.error(request, error.message)
            else:
                self.log_change(request, breaker, f"closed: {form.cleaned_data['note']}")
                messages.success(request, "Payouts go on.")
        return None


admin.site.register([Position, Difference, FakeMovement], ReadOnlyAdmin)
