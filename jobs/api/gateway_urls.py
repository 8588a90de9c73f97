"""Mounted at /internal/gateway/v1/: for gateways, which have a token; a proxy in front need not pass it on."""

from __future__ import annotations

from django.urls import path

from jobs.api import gateways

urlpatterns = [
    path("sync", gateways.sync),
    path("keys", gateways.look_up_keys),
]
