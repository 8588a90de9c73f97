"""Routes of `marketplace.nodes` for agents, under /api/agent/v1/."""

from __future__ import annotations

from django.urls import path, re_path

from marketplace.nodes.api import agents

urlpatterns = [
    path("enrol", agents.EnrolView.as_view(), name="agent-enrol"),
    path("measurements", agents.MeasurementsView.as_view(), name="agent-measurements"),
    re_path(
        r"^checks/(?P<check_id>[0-9a-f-]{36})/(?P<step>begin|commit|reveal|filled|recall)$",
        agents.CheckView.as_view(),
        name="agent-check",
    ),
    re_path(r"^links/(?P<probe_id>[0-9a-f-]{36})$", agents.LinkView.as_view(), name="agent-link"),
    path("sample", agents.SampleView.as_view(), name="agent-sample"),
    path("standing", agents.StandingView.as_view(), name="agent-standing"),
    path("drain", agents.DrainView.as_view(), name="agent-drain"),
    path("resume", agents.ResumeView.as_view(), name="agent-resume"),
    path("price", agents.PriceView.as_view(), name="agent-price"),
    path("schedule", agents.ScheduleView.as_view(), name="agent-schedule"),
    path("retire", agents.RetireView.as_view(), name="agent-retire"),
]
