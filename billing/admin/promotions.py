"""The operator gives credit and makes codes; what was given can be read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest

from billing.charging import promotions
from billing.models import PromoCode, PromotionDraw, PromotionGrant
from billing.money import parse_usd
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.admin import ReadOnlyAdmin


class _AmountForm(forms.ModelForm[Any]):
    dollars = forms.CharField(help_text="Such as 25 or 2.50.", max_length=30)

    def clean_dollars(self) -> int:
        try:
            amount = parse_usd(self.cleaned_data["dollars"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if amount <= 0:
            raise forms.ValidationError("A gift is above zero.")
        return amount


class CodeForm(_AmountForm):
    """The code, the amount that it gives, and how often."""

    class Meta:
        model = PromoCode
        fields = ["code", "uses_max", "uses_per_organisation_max", "valid_days", "valid_until"]

    def clean_code(self) -> str:
        return str(self.cleaned_data["code"]).strip().upper()


@admin.register(PromoCode)
class PromoCodeAdmin(ReadOnlyAdmin):
    list_display = ["code", "amount", "uses_max", "uses_per_organisation_max", "valid_until", "is_active"]
    search_fields = ["code"]
    form = CodeForm
    actions = ["stop"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_promocode"))

    def get_fields(self, request: HttpRequest, obj: PromoCode | None = None) -> Any:
        own = ["code", "uses_max", "uses_per_organisation_max", "valid_days", "valid_until"]
        return [*own, "dollars"] if obj is None else [*own, "amount", "is_active"]

    def save_model(self, request: HttpRequest, obj: PromoCode, form: Any, change: bool) -> None:
        obj.amount = form.cleaned_data["dollars"]
        obj.save(force_insert=True)

    @admin.action(description="Stop: nobody can use it any more", permissions=["operate"])
    def stop(self, request: HttpRequest, chosen: models.QuerySet[PromoCode]) -> None:
        messages.success(request, f"{chosen.update(is_active=False)} codes stopped.")


class GrantForm(_AmountForm):
    """To whom, how much, for how long, and why."""

    organisation = forms.ModelChoiceField(Organisation.objects.order_by("name"))
    days = forms.IntegerField(min_value=1, max_value=3650, initial=90)

    class Meta:
        model = PromotionGrant
        fields = ["reference"]


@admin.register(PromotionGrant)
class PromotionGrantAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "owner_id", "amount", "left", "code", "reference", "expires_at", "actor"]
    search_fields = ["=owner_id", "reference"]
    form = GrantForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_promotiongrant"))

    def get_fields(self, request: HttpRequest, obj: PromotionGrant | None = None) -> Any:
        if obj is None:
            return ["organisation", "dollars", "days", "reference"]
        return ["owner_id", "amount", "left", "code", "reference", "expires_at", "actor", "created_at"]

    def save_model(self, request: HttpRequest, obj: PromotionGrant, form: Any, change: bool) -> None:
        """The verb writes the row; the form's own instance becomes it."""
        data = form.cleaned_data
        given = promotions.grant(
            data["organisation"].pk,
            data["dollars"],
            expires_at=clock.now() + timedelta(days=data["days"]),
            reference=data["reference"],
            actor=str(request.user),
        )
        obj.pk = given.pk


admin.site.register([PromotionDraw], ReadOnlyAdmin)
