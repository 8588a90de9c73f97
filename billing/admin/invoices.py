"""The operator reads invoices, and sets the tax on a customer's next one."""

from __future__ import annotations

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from billing.models import BillingDetails, Invoice, InvoiceCounter
from marketplace.foundation.admin import ReadOnlyAdmin


@admin.register(Invoice)
class InvoiceAdmin(ReadOnlyAdmin):
    list_display = ["label", "kind", "owner_id", "month", "asset", "total", "tax", "issued_at"]
    list_filter = ["kind", "year"]
    search_fields = ["=owner_id"]
    ordering = ["-year", "-number"]


@admin.register(BillingDetails)
class BillingDetailsAdmin(ReadOnlyAdmin):
    """The customer fills it in through the API; the rate of tax is set here."""

    list_display = ["owner_id", "name", "country", "tax_id", "tax_bps", "tax_note"]
    search_fields = ["=owner_id", "name", "tax_id"]
    fields = ["name", "address", "country", "tax_id", "tax_bps", "tax_note"]

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return bool(request.user.has_perm("billing.change_billingdetails"))


admin.site.register([InvoiceCounter], ReadOnlyAdmin)
