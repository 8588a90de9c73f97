"""The operator's view of cards: refunds, disputes and their evidence, events that could not be handled."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest

from billing.errors import BillingError
from billing.fiat import chargebacks, events, refunds
from billing.models import (
    AutoTopUp,
    CardDispute,
    ChargebackRecovery,
    ConnectAccount,
    FraudWarning,
    SavedCard,
    StripeBooking,
    StripeCursor,
    StripeCustomer,
    StripeEvent,
    TopUp,
    TopUpRefund,
    TransferReversal,
)
from billing.money import format_usd
from marketplace.foundation.admin import ReadOnlyAdmin


@admin.register(TopUp)
class TopUpAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "owner_id", "shown_amount", "method", "state", "reason", "spendable_at", "is_fake"]
    list_filter = ["state", "method", "is_fake"]
    search_fields = ["=id", "=owner_id", "=intent_id", "=charge_id", "=session_id"]
    actions = ["refund"]

    @admin.display(description="amount")
    def shown_amount(self, top_up: TopUp) -> str:
        return format_usd(int(top_up.amount))

    @admin.action(description="Refund what is left of it, from the unspent balance", permissions=["operate"])
    def refund(self, request: HttpRequest, chosen: models.QuerySet[TopUp]) -> None:
        for top_up in chosen:
            try:
                refunds.request_refund(top_up.pk, owner_id=top_up.owner_id, actor=str(request.user))
            except BillingError as error:
                messages.error(request, f"{top_up}: {error}")
            else:
                self.log_change(request, top_up, "refund requested")
                messages.success(request, f"{top_up}: the refund is on its way.")


@admin.register(CardDispute)
class CardDisputeAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "stripe_id", "top_up", "shown_loss", "state", "reason", "evidence_due_at", "is_sent"]
    list_filter = ["state", "reason"]
    search_fields = ["=stripe_id", "=top_up__owner_id"]
    actions = ["send_evidence"]

    @admin.display(description="loss")
    def shown_loss(self, dispute: CardDispute) -> str:
        return format_usd(int(dispute.loss))

    @admin.display(description="evidence sent", boolean=True)
    def is_sent(self, dispute: CardDispute) -> bool:
        return dispute.evidence_sent_at is not None

    @admin.action(description="Send the prepared evidence to the bank (once)", permissions=["operate"])
    def send_evidence(self, request: HttpRequest, chosen: models.QuerySet[CardDispute]) -> None:
        for dispute in chosen:
            chargebacks.request_evidence(dispute.pk, text=dispute.evidence, actor=str(request.user))
            self.log_change(request, dispute, "evidence sent")
        messages.success(request, "The evidence is on its way.")


@admin.register(StripeEvent)
class StripeEventAdmin(ReadOnlyAdmin):
    list_display = ["received_at", "event_id", "type", "account", "outcome", "attempts", "error"]
    list_filter = ["outcome", "type"]
    search_fields = ["=event_id"]
    actions = ["try_again"]

    @admin.action(description="Try those again that were given up", permissions=["operate"])
    def try_again(self, request: HttpRequest, chosen: models.QuerySet[StripeEvent]) -> None:
        count = events.try_again(chosen.values_list("pk", flat=True))
        messages.success(request, f"{count} will be tried again.")


@admin.register(TopUpRefund)
class TopUpRefundAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "top_up", "amount", "state", "stripe_id", "message", "actor"]
    list_filter = ["state"]


@admin.register(AutoTopUp)
class AutoTopUpAdmin(ReadOnlyAdmin):
    list_display = ["owner_id", "threshold", "amount", "monthly_max", "is_enabled", "failures", "paused_at"]


@admin.register(ConnectAccount)
class ConnectAccountAdmin(ReadOnlyAdmin):
    list_display = ["owner_id", "stripe_id", "country", "is_submitted", "is_payable", "disabled_reason", "checked_at"]
    search_fields = ["=owner_id", "=stripe_id"]


@admin.register(FraudWarning)
class FraudWarningAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "top_up", "fraud_type", "is_actionable", "frozen_at", "stripe_id"]
    list_filter = ["is_actionable"]
    search_fields = ["=stripe_id", "=top_up__id", "=top_up__owner_id"]


@admin.register(TransferReversal)
class TransferReversalAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "provider_id", "stripe_transfer_id", "amount", "state", "message"]
    list_filter = ["state"]


admin.site.register([ChargebackRecovery, SavedCard, StripeBooking, StripeCursor, StripeCustomer], ReadOnlyAdmin)
