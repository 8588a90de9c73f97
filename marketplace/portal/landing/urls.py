"""The address of the front page."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.landing.views import landing

urlpatterns = [
    path("", landing, name="landing"),
]
