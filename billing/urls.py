"""Billing's part of /api/v1."""

from django.urls import path

from billing.api.balance import BalanceView, TransferList

urlpatterns = [
    path("balance", BalanceView.as_view(), name="balance"),
    path("transfers", TransferList.as_view(), name="transfers"),
]
