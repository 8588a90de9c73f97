"""The addresses that nodes use, as the web process mounts them, and nothing else: for tests of these packages."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("api/agent/v1/", include("jobs.api.agent_urls")),
    path("artifacts/", include("jobs.artifacts.urls")),
]
