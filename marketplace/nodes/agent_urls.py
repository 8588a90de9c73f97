"""Routes of this room for agents, under /api/agent/v1/."""

from __future__ import annotations

from django.urls import path, re_path

from marketplace.nodes import agent_api

urlpatterns = [
    path("enrol", agent_api.EnrolView.as_view(), name="agent-enrol"),
    path("measurements", agent_api.MeasurementsView.as_view(), name="agent-measurements"),
    re_path(
        r"^checks/(?P<check_id>[0-9a-f-]{36})/(?P<step>begin|commit|reveal|filled|recall)$",
        agent_api.CheckView.as_view(),
        name="agent-check",
    ),
    re_path(r"^links/(?P<probe_id>[0-9a-f-]{36})$", agent_api.LinkView.as_view(), name="agent-link"),
    path("sample", agent_api.SampleView.as_view(), name="agent-sample"),
    path("standing", agent_api.StandingView.as_view(), name="agent-standing"),
    path("drain", agent_api.DrainView.as_view(), name="agent-drain"),
    path("resume", agent_api.ResumeView.as_view(), name="agent-resume"),
    path("price", agent_api.PriceView.as_view(), name="agent-price"),
    path("schedule", agent_api.ScheduleView.as_view(), name="agent-schedule"),
    path("retire", agent_api.RetireView.as_view(), name="agent-retire"),
]
