"""The address of the solvency page."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.solvency.views import solvency_page

urlpatterns = [
    path("solvency", solvency_page, name="solvency-page"),
]
