"""Mounted at /internal/gateway/v1/: for gateways, which have a token; a proxy in front need not pass it on."""

from __future__ import annotations

from django.urls import path

from jobs.serving import gateway_api

urlpatterns = [
    path("sync", gateway_api.sync),
    path("keys", gateway_api.look_up_keys),
]
