"""Billing's part of /api/v1."""

from django.urls import path

from billing.api import disputes, invoices, limits, promotions
from billing.api.balance import BalanceView, TransferList
from billing.api.cards import CardSetupView, CardsView, CardView, DefaultCardView
from billing.api.chain import EscrowList, PayoutProof
from billing.api.deposits import DepositList
from billing.api.payout_account import OnboardingView, PayoutAccountView
from billing.api.payouts import AccrualView, PayoutList, PayoutRetry, PayoutSettingsView, StatementView
from billing.api.solvency import SolvencyProofView, SolvencyReportsView, SolvencyReportView, SolvencyView
from billing.api.topups import RefundsView, RuleView, TopUpsView, TopUpView
from billing.api.webhook import WebhookView

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
    path("solvency/proof", SolvencyProofView.as_view(), name="solvency-proof"),
    path("solvency/reports", SolvencyReportsView.as_view(), name="solvency-reports"),
    path("solvency/reports/<int:number>", SolvencyReportView.as_view(), name="solvency-report"),
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
    path("top-ups", TopUpsView.as_view(), name="top-ups"),
    path("top-ups/<uuid:top_up_id>", TopUpView.as_view(), name="top-up"),
    path("top-ups/<uuid:top_up_id>/refunds", RefundsView.as_view(), name="top-up-refunds"),
    path("auto-top-up", RuleView.as_view(), name="auto-top-up"),
    path("cards", CardsView.as_view(), name="cards"),
    path("cards/setup", CardSetupView.as_view(), name="card-setup"),
    path("cards/<uuid:card_id>", CardView.as_view(), name="card"),
    path("cards/<uuid:card_id>/default", DefaultCardView.as_view(), name="card-default"),
    path("payout-account", PayoutAccountView.as_view(), name="payout-account"),
    path("payout-account/onboarding", OnboardingView.as_view(), name="payout-account-onboarding"),
    path("stripe/webhook", WebhookView.as_view(), name="stripe-webhook"),
]
