"""The addresses of the usage page."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.usage.views import usage_csv, usage_page

urlpatterns = [
    path("usage", usage_page, name="usage-page"),
    path("usage.csv", usage_csv, name="usage-csv"),
]
