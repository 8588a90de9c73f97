"""Billing's part of /api/v1."""

from django.urls import path

from billing.api import disputes, invoices, limits, promotions
from billing.api.balance import BalanceView, TransferList
from billing.api.chain import EscrowList, PayoutProof
from billing.api.deposits import DepositList
from billing.api.payouts import AccrualView, PayoutList, PayoutRetry, PayoutSettingsView, StatementView
from billing.api.solvency import SolvencyView

urlpatterns = [
    path("balance", BalanceView.as_view(), name="balance"),
    path("deposits", DepositList.as_view(), name="deposits"),
    path("transfers", TransferList.as_view(), name="transfers"),
    path("payout-settings", PayoutSettingsView.as_view(), name="payout-settings"),
    path("payouts", PayoutList.as_view(), name="payouts"),
    path("payouts/<uuid:payout_id>/retry", PayoutRetry.as_view(), name="payout-retry"),
    path("accrual", AccrualView.as_view(), name="accrual"),
    path("statements", StatementView.as_view(), name="statements"),
    path("solvency", SolvencyView.as_view(), name="solvency"),
    path("escrow", EscrowList.as_view(), name="escrow"),
    path("payouts/<uuid:payout_id>/proof", PayoutProof.as_view(), name="payout-proof"),
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
