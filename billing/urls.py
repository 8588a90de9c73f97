"""Billing's part of /api/v1."""

from django.urls import path

from billing.api.balance import BalanceView, TransferList
from billing.api.deposits import DepositList

urlpatterns = [
    path("balance", BalanceView.as_view(), name="balance"),
    path("deposits", DepositList.as_view(), name="deposits"),
    path("transfers", TransferList.as_view(), name="transfers"),
]
