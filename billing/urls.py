"""Billing's part of /api/v1."""

from django.urls import path

from billing.api.balance import BalanceView, TransferList
from billing.api.cards import CardSetupView, CardsView, CardView, DefaultCardView
from billing.api.fake_card import fake_card_page
from billing.api.payout_account import OnboardingView, PayoutAccountView
from billing.api.topups import RefundsView, RuleView, TopUpsView, TopUpView
from billing.api.webhook import WebhookView

urlpatterns = [
    path("balance", BalanceView.as_view(), name="balance"),
    path("transfers", TransferList.as_view(), name="transfers"),
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
    path("fake-card/<uuid:top_up_id>", fake_card_page, name="fake-card"),
]
