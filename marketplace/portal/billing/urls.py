"""The addresses of an organisation's money."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.billing import views

urlpatterns = [
    path("billing", views.billing_page, name="billing-page"),
    path("billing/top-ups", views.top_up, name="billing-top-up"),
    path("billing/top-ups/<uuid:top_up_id>", views.top_up_page, name="top-up-page"),
    path("billing/top-ups/<uuid:top_up_id>/now", views.top_up_now, name="top-up-now"),
]
