"""The operator decides disputes: facts, receipts, both sides and the form on one page. Fines can be read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, path, reverse

from billing.contesting import disputes
from billing.models import Dispute, EndRecord, Offence, OffenceTaking, ReceiptEvidence, UsageReceipt
from billing.money import parse_amount
from marketplace.foundation.admin import ReadOnlyAdmin
from marketplace.foundation.errors import SoukError

RECEIPTS_MAX = 50  # the newest ones


class DecisionForm(forms.Form):
    """Who gets how much of what is frozen, in whole units of its asset such as 1.25; the rest is the provider's."""

    to_customer = forms.CharField(max_length=100, label="To the customer")
    to_platform = forms.CharField(max_length=100, label="To the platform", initial="0")
    text = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 4}),
        max_length=disputes.TEXT_CHARACTERS_MAX,
        label="Why; both sides read it",
    )

    def __init__(self, dispute: Dispute, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dispute = dispute

    def clean_to_customer(self) -> int:
        return self._units("to_customer")

    def clean_to_platform(self) -> int:
        return self._units("to_platform")

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if "to_customer" in data and "to_platform" in data:
            data["to_provider"] = self.dispute.amount - data["to_customer"] - data["to_platform"]
            if data["to_provider"] < 0:
                raise forms.ValidationError("This is more than what is frozen.")
        return data

    def _units(self, field: str) -> int:
        try:
            return parse_amount(self.cleaned_data[field], scale=self.dispute.asset.scale)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


@admin.register(Dispute)
class DisputeAdmin(ReadOnlyAdmin):
    list_display = ["opened_at", "state", "lease_id", "frozen", "answer_until", "decide_until", "closed_at"]
    list_filter = ["state"]
    search_fields = ["=id", "=job_id", "=lease_id", "=customer_id", "=provider_id"]
    ordering = ["-opened_at"]
    change_form_template = "billing/dispute.html"

    @admin.display(description="frozen")
    def frozen(self, dispute: Dispute) -> str:
        return dispute.asset.show(dispute.amount)

    def get_urls(self) -> list[Any]:
        decide = path(
            "<uuid:dispute_id>/decide/", self.admin_site.admin_view(self.decide), name="billing_dispute_decide"
        )
        return [decide, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        dispute = Dispute.objects.filter(pk=object_id).select_related("asset").first()
        found = self._page(request, dispute) if dispute is not None else {}
        return super().change_view(request, object_id, form_url, (extra_context or {}) | found)

    def decide(self, request: HttpRequest, dispute_id: UUID) -> HttpResponse:
        """Only by POST, and only who may change disputes."""
        if request.method != "POST" or not self.has_operate_permission(request):
            raise PermissionDenied
        dispute = Dispute.objects.select_related("asset").get(pk=dispute_id)
        form = DecisionForm(dispute, request.POST)
        if not form.is_valid():
            messages.error(request, " ".join(str(each) for errors in form.errors.values() for each in errors))
            return redirect("admin:billing_dispute_change", dispute_id)
        parts = {name: form.cleaned_data[name] for name in ("to_customer", "to_provider", "to_platform", "text")}
        try:
            disputes.decide(dispute_id, **parts, actor=str(request.user))
        except SoukError as error:
            messages.error(request, error.message)
        else:
            self.log_change(request, dispute, "decided")
            messages.success(request, "Decided: the money has moved.")
        return redirect("admin:billing_dispute_change", dispute_id)

    def _page(self, request: HttpRequest, dispute: Dispute) -> dict[str, Any]:
        receipts = UsageReceipt.objects.filter(lease_id=dispute.lease_id).order_by("-seq")
        is_open = dispute.state in {"opened", "answered"}
        return {
            "dispute": dispute,
            "frozen": self.frozen(dispute),
            "end": EndRecord.objects.filter(lease_id=dispute.lease_id).first(),
            "receipts": receipts[:RECEIPTS_MAX],
            "contradictions": ReceiptEvidence.objects.filter(lease_id=dispute.lease_id),
            "offences": Offence.objects.filter(lease_id=dispute.lease_id),
            "lease_url": _url("admin:jobs_lease_change", dispute.lease_id),
            "job_url": _url("admin:jobs_job_change", dispute.job_id),
            "decision_form": DecisionForm(dispute) if is_open and self.has_operate_permission(request) else None,
        }


@admin.register(EndRecord)
class EndRecordAdmin(ReadOnlyAdmin):
    list_display = ["ended_at", "lease_id", "reason", "fault", "claimed_ms", "observed_ms", "billable_ms"]
    list_filter = ["fault", "reason"]
    search_fields = ["=lease_id", "=job_id", "=provider_id", "=node_id"]
    ordering = ["-ended_at"]


class TakingInline(admin.TabularInline[OffenceTaking, Offence]):
    model = OffenceTaking
    extra = 0
    can_delete = False


@admin.register(Offence)
class OffenceAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "provider_id", "reason", "penalty", "taken", "compensated", "lease_id"]
    list_filter = ["reason"]
    search_fields = ["=id", "=provider_id", "=lease_id", "=job_id"]
    inlines = [TakingInline]


admin.site.register([OffenceTaking], ReadOnlyAdmin)


def _url(name: str, row_id: UUID) -> str:
    """Of a page of a package above, where there is one: its logs are there."""
    try:
        return reverse(name, args=[row_id])
    except NoReverseMatch:
        return ""
