"""Billing's part of /api/v1."""

from django.urls import path

from billing.api import disputes, invoices, limits, promotions
from billing.api.balance import BalanceView, TransferList

urlpatterns = [
    path("balance", BalanceView.as_view(), name="balance"),
    path("transfers", TransferList.as_view(), name="transfers"),
    path("disputes", disputes.DisputesView.as_view(), name="disputes"),
    path("disputes/<uuid:dispute_id>", disputes.DisputeView.as_view(), name="dispute"),
    path("disputes/<uuid:dispute_id>/answer", disputes.AnswerView.as_view(), name="dispute-answer"),
    path("disputes/<uuid:dispute_id>/withdraw", disputes.WithdrawView.as_view(), name="dispute-withdraw"),
    path("spend-limits", limits.LimitsView.as_view(), name="spend-limits"),
    path("spend-limits/<uuid:limit_id>", limits.LimitView.as_view(), name="spend-limit"),
    path("promotions", promotions.PromotionsView.as_view(), name="promotions"),
    path("invoices", invoices.InvoicesView.as_view(), name="invoices"),
    path("invoices/<uuid:invoice_id>", invoices.InvoiceView.as_view(), name="invoice"),
    path("invoices/<uuid:invoice_id>/pdf", invoices.InvoicePdfView.as_view(), name="invoice-pdf"),
    path("invoices/<uuid:invoice_id>/csv", invoices.InvoiceCsvView.as_view(), name="invoice-csv"),
    path("billing-details", invoices.DetailsView.as_view(), name="billing-details"),
]
