"""Mounted at /api/agent/v1/, beside the nodes room's."""

from __future__ import annotations

from django.urls import path

from jobs import agent_api

urlpatterns = [
    path("earnings", agent_api.get_earnings),
    path("leases/<uuid:lease_id>/logs", agent_api.append_log),
    path("leases/<uuid:lease_id>/events", agent_api.append_events),
    path("leases/<uuid:lease_id>/receipts", agent_api.append_receipts),
    path("leases/<uuid:lease_id>/statement", agent_api.append_statement),
    path("leases/<uuid:lease_id>/artifacts", agent_api.begin_artifact),
    path("leases/<uuid:lease_id>/artifacts/<uuid:artifact_id>", agent_api.get_artifact),
    path("leases/<uuid:lease_id>/artifacts/<uuid:artifact_id>/complete", agent_api.complete_artifact),
]
