"""Routes of this room for agents, under /api/agent/v1/."""

from __future__ import annotations

from django.urls import path

from marketplace.nodes import agent_api

urlpatterns = [
    path("enrol", agent_api.EnrolView.as_view(), name="agent-enrol"),
    path("measurements", agent_api.MeasurementsView.as_view(), name="agent-measurements"),
    path("retire", agent_api.RetireView.as_view(), name="agent-retire"),
]
