"""The operator sees limits and what counts against them, and can set one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from billing.charging import limits
from billing.models import Commitment, SpendLimit
from billing.money import format_usd, parse_usd
from marketplace.accounts.models import Organisation, User
from marketplace.foundation.admin import ReadOnlyAdmin


class LimitForm(forms.ModelForm[SpendLimit]):
    """Of an organisation, or of one member in it; setting it again changes it."""

    organisation = forms.ModelChoiceField(Organisation.objects.order_by("name"))
    member = forms.ModelChoiceField(User.objects.order_by("email"), required=False)
    dollars = forms.CharField(help_text="Such as 250 or 2.50.", max_length=30)

    class Meta:
        model = SpendLimit
        fields = ["period"]

    def clean_dollars(self) -> int:
        try:
            return parse_usd(self.cleaned_data["dollars"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


@admin.register(SpendLimit)
class SpendLimitAdmin(ReadOnlyAdmin):
    list_display = ["owner_id", "member_id", "period", "limit", "used", "set_by"]
    list_filter = ["period"]
    search_fields = ["=owner_id", "=member_id"]
    form = LimitForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_spendlimit"))

    def get_fields(self, request: HttpRequest, obj: SpendLimit | None = None) -> Any:
        if obj is None:
            return ["organisation", "member", "period", "dollars"]
        return ["owner_id", "member_id", "period", "amount", "set_by", "created_at"]

    @admin.display(description="limit")
    def limit(self, row: SpendLimit) -> str:
        return format_usd(row.amount)

    @admin.display(description="used")
    def used(self, row: SpendLimit) -> str:
        return format_usd(limits.standing_of(row).used)

    def save_model(self, request: HttpRequest, obj: SpendLimit, form: Any, change: bool) -> None:
        """The verb writes the row; the form's own instance becomes it."""
        data = form.cleaned_data
        member = data["member"]
        made = limits.set_limit(
            data["organisation"].pk,
            member_id=member.pk if member else None,
            period=data["period"],
            amount=data["dollars"],
            actor=str(request.user),
        )
        obj.pk = made.pk


@admin.register(Commitment)
class CommitmentAdmin(ReadOnlyAdmin):
    list_display = ["opened_at", "job_id", "owner_id", "member_id", "amount", "charged", "closed_at"]
    search_fields = ["=job_id", "=owner_id", "=member_id"]
    ordering = ["-opened_at"]
