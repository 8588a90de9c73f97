"""Mounted at /api/agent/v1/, beside the addresses of marketplace.nodes."""

from __future__ import annotations

from django.urls import path

from jobs.api import agents

urlpatterns = [
    path("earnings", agents.get_earnings),
    path("leases/<uuid:lease_id>/logs", agents.append_log),
    path("leases/<uuid:lease_id>/events", agents.append_events),
    path("leases/<uuid:lease_id>/receipts", agents.append_receipts),
    path("leases/<uuid:lease_id>/statement", agents.append_statement),
    path("leases/<uuid:lease_id>/artifacts", agents.begin_artifact),
    path("leases/<uuid:lease_id>/artifacts/<uuid:artifact_id>", agents.get_artifact),
    path("leases/<uuid:lease_id>/artifacts/<uuid:artifact_id>/complete", agents.complete_artifact),
]
