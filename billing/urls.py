"""Billing's part of /api/v1."""

from django.urls import path

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
]
