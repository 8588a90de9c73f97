"""The address of the offers."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.offers.views import offers_page

urlpatterns = [path("offers", offers_page, name="offers-page")]
