"""The operator's view of money: everything can be read, nothing can be changed; a deposit can be added, once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest

from billing.account_kinds import OWNED_KINDS
from billing.books import deposits
from billing.models import (
    Account,
    Asset,
    DailyRoot,
    Deposit,
    Hold,
    ReceiptEvidence,
    Settlement,
    SettlementShare,
    Transfer,
    UsageReceipt,
)
from billing.money import parse_usd
from marketplace.accounts.models import Organisation
from marketplace.foundation.admin import ReadOnlyAdmin


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    list_display = ["kind", "owner_id", "job_id", "balance", "is_frozen"]
    list_select_related = ["asset"]
    list_filter = ["kind", "is_frozen"]
    search_fields = ["owner_id", "job_id"]
    actions = ["freeze", "unfreeze"]

    @admin.display(description="balance")
    def balance(self, account: Account) -> str:
        return account.asset.show(account.available) if account.is_summed else "see `souk ledger show`"

    @admin.action(description="Freeze: money goes in, none goes out", permissions=["operate"])
    def freeze(self, request: HttpRequest, chosen: models.QuerySet[Account]) -> None:
        """Accounts of an owner only: with a frozen account of the platform's own, no job could end."""
        mine = chosen.filter(kind__in=OWNED_KINDS)
        if mine.count() < chosen.count():
            messages.error(request, "The platform's own accounts are never frozen: every payment goes through them.")
        self._set_frozen(request, mine, is_frozen=True)

    @admin.action(description="Unfreeze", permissions=["operate"])
    def unfreeze(self, request: HttpRequest, chosen: models.QuerySet[Account]) -> None:
        self._set_frozen(request, chosen, is_frozen=False)

    def _set_frozen(self, request: HttpRequest, chosen: models.QuerySet[Account], *, is_frozen: bool) -> None:
        for account in chosen:
            self.log_change(request, account, "frozen" if is_frozen else "unfrozen")
        messages.success(request, f"{chosen.update(is_frozen=is_frozen)} accounts changed.")


@admin.register(Transfer)
class TransferAdmin(ReadOnlyAdmin):
    list_display = ["seq", "created_at", "code", "mode", "amount", "debit", "credit", "job_id"]
    list_filter = ["code", "mode"]
    search_fields = ["id", "group_id", "job_id", "external_ref"]
    list_select_related = ["debit", "credit"]


class DepositForm(forms.ModelForm[Deposit]):
    """What the operator enters: whom, how much, and the source that makes it count once."""

    organisation = forms.ModelChoiceField(Organisation.objects.order_by("name"))
    amount = forms.CharField(help_text="In dollars, such as 25 or 2.50; six decimals at most.", max_length=30)

    class Meta:
        model = Deposit
        fields = ["reference"]
        help_texts = {"reference": "The bank's reference, or a note of your own. Each can be used once."}

    def clean_amount(self) -> int:
        try:
            amount = parse_usd(self.cleaned_data["amount"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if amount <= 0:
            raise forms.ValidationError("A deposit is above zero.")
        return amount

    def clean_reference(self) -> str:
        reference: str = self.cleaned_data["reference"].strip()
        if Deposit.objects.filter(rail=deposits.RAIL_OPERATOR, reference=reference).exists():
            raise forms.ValidationError("This reference was used. A deposit needs one of its own.")
        return reference


@admin.register(Deposit)
class DepositAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "owner_id", "shown_amount", "rail", "reference", "actor"]
    list_filter = ["rail"]
    list_select_related = ["asset"]
    search_fields = ["owner_id", "reference"]
    form = DepositForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_deposit"))

    def get_fields(self, request: HttpRequest, obj: Deposit | None = None) -> Any:
        if obj is None:
            return ["organisation", "amount", "reference"]
        return ["owner_id", "shown_amount", "rail", "reference", "actor", "transfer", "created_at"]

    @admin.display(description="amount")
    def shown_amount(self, deposit: Deposit) -> str:
        return deposit.asset.show(deposit.amount)

    def save_model(self, request: HttpRequest, obj: Deposit, form: Any, change: bool) -> None:
        """The ledger's verb writes the row; the form's own instance becomes it."""
        organisation_id: UUID = form.cleaned_data["organisation"].pk
        transfer = deposits.credit(
            organisation_id,
            form.cleaned_data["amount"],
            reference=form.cleaned_data["reference"],
            actor=str(request.user),
        )
        written = Deposit.objects.get(transfer=transfer)
        obj.pk, obj.owner_id, obj.amount = written.pk, written.owner_id, written.amount


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "job_id", "owner_id", "amount", "state"]
    list_filter = ["state"]
    search_fields = ["job_id", "owner_id"]


class ShareInline(admin.TabularInline[SettlementShare, Settlement]):
    model = SettlementShare
    extra = 0
    can_delete = False


@admin.register(Settlement)
class SettlementAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "job_id", "charged", "fee", "paid"]
    search_fields = ["job_id", "owner_id"]
    inlines = [ShareInline]


@admin.register(SettlementShare)
class SettlementShareAdmin(ReadOnlyAdmin):
    list_display = [
        "lease_id",
        "provider_id",
        "charged",
        "paid",
        "challenge_until",
        "released_at",
    ]
    search_fields = ["lease_id", "provider_id"]


@admin.register(UsageReceipt)
class UsageReceiptAdmin(ReadOnlyAdmin):
    list_display = ["lease_id", "seq", "billable_ms", "cumulative_amount", "signer", "received_at"]
    search_fields = ["lease_id", "job_id", "digest"]


@admin.register(ReceiptEvidence)
class ReceiptEvidenceAdmin(ReadOnlyAdmin):
    list_display = ["found_at", "lease_id", "seq", "signer"]
    search_fields = ["lease_id", "signer"]


admin.site.register([Asset, DailyRoot], ReadOnlyAdmin)
