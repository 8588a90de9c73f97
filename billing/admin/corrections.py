"""Corrections of the ledger: proposed by `souk ledger correct`, approved or rejected here by somebody else."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from billing.models import LedgerCorrection
from billing.reconciliation import correcting
from marketplace.accounts.models import User
from marketplace.foundation.admin import ReadOnlyAdmin
from marketplace.foundation.errors import SoukError


@admin.register(LedgerCorrection)
class LedgerCorrectionAdmin(ReadOnlyAdmin):
    list_display = ["proposed_at", "state", "ref", "mirror", "shown_amount", "against", "proposed_by", "decided_by"]
    list_filter = ["state", "rail"]
    search_fields = ["=id", "=ref"]
    list_select_related = ["asset"]
    actions = ["approve", "reject"]

    @admin.display(description="amount")
    def shown_amount(self, correction: LedgerCorrection) -> str:
        return correction.asset.show(int(correction.amount))

    @admin.action(description="Approve: the money is booked now", permissions=["operate"])
    def approve(self, request: HttpRequest, chosen: QuerySet[LedgerCorrection]) -> None:
        self._decide(request, chosen, lambda one, by: correcting.approve(one.pk, by=by))

    @admin.action(description="Reject: nothing is booked", permissions=["operate"])
    def reject(self, request: HttpRequest, chosen: QuerySet[LedgerCorrection]) -> None:
        self._decide(request, chosen, lambda one, by: correcting.reject(one.pk, by=by))

    def _decide(
        self,
        request: HttpRequest,
        chosen: QuerySet[LedgerCorrection],
        decide: Callable[[LedgerCorrection, User], LedgerCorrection],
    ) -> None:
        by = request.user
        if not isinstance(by, User):  # whoever reached this page is signed in
            return
        for correction in chosen:
            try:
                decided = decide(correction, by)
            except SoukError as error:
                messages.error(request, f"{correction.ref or correction.mirror}: {error.message}")
            else:
                self.log_change(request, decided, str(decided.state))
                messages.success(request, f"{correction.ref or correction.mirror}: {decided.state}.")
