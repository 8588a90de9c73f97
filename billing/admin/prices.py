"""The operator's view of token prices: all that were observed, and a form to add one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from billing import prices
from billing.models import Asset, TokenPrice
from billing.models.ledger import USD_ASSET_ID
from billing.money import format_usd, parse_usd
from marketplace.foundation.admin import ReadOnlyAdmin


class PriceForm(forms.ModelForm[TokenPrice]):
    """Which token, and what one whole one costs."""

    asset = forms.ModelChoiceField(Asset.objects.exclude(pk=USD_ASSET_ID).order_by("code"))
    price = forms.CharField(help_text="Dollars for one whole token, such as 3120.55; six decimals.", max_length=30)

    class Meta:
        model = TokenPrice
        fields = ["asset"]

    def clean_price(self) -> int:
        try:
            price = parse_usd(self.cleaned_data["price"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if price <= 0:
            raise forms.ValidationError("A price is above zero.")
        return price


@admin.register(TokenPrice)
class TokenPriceAdmin(ReadOnlyAdmin):
    list_display = ["observed_at", "asset", "price", "source", "detail"]
    list_filter = ["source", "asset"]
    ordering = ["-observed_at"]
    form = PriceForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_tokenprice"))

    def get_fields(self, request: HttpRequest, obj: TokenPrice | None = None) -> Any:
        return ["asset", "price"] if obj is None else ["asset", "usd_micros_per_token", "source", "detail"]

    @admin.display(description="one token")
    def price(self, row: TokenPrice) -> str:
        return format_usd(row.usd_micros_per_token)

    def save_model(self, request: HttpRequest, obj: TokenPrice, form: Any, change: bool) -> None:
        """The verb writes the row; the form's own instance becomes it."""
        written = prices.set_price(form.cleaned_data["asset"].pk, form.cleaned_data["price"], actor=str(request.user))
        obj.pk = written.pk
