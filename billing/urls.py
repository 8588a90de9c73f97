"""Billing's part of /api/v1."""

from django.urls import path

from billing.api.balance import BalanceView, TransferList
from billing.api.chain import EscrowList, PayoutProof

urlpatterns = [
    path("balance", BalanceView.as_view(), name="balance"),
    path("transfers", TransferList.as_view(), name="transfers"),
    path("escrow", EscrowList.as_view(), name="escrow"),
    path("payouts/<uuid:payout_id>/proof", PayoutProof.as_view(), name="payout-proof"),
]
