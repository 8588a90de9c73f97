"""Routes of `marketplace.nodes` for people, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from marketplace.nodes.api import people

urlpatterns = [
    path("provider", people.ProviderView.as_view(), name="provider"),
    path("provider/enrolment-tokens", people.EnrolmentTokensView.as_view(), name="enrolment-tokens"),
    path("provider/nodes", people.NodesView.as_view(), name="nodes"),
    path("provider/nodes/<uuid:node_id>", people.NodeView.as_view(), name="node"),
    path("provider/nodes/<uuid:node_id>/checks", people.NodeChecksView.as_view(), name="node-checks"),
    path("provider/nodes/<uuid:node_id>/reputation", people.NodeReputationView.as_view(), name="node-reputation"),
    path("provider/nodes/<uuid:node_id>/metrics", people.NodeMetricsView.as_view(), name="node-metrics"),
    path("provider/nodes/<uuid:node_id>/schedule", people.NodeScheduleView.as_view(), name="node-schedule"),
    path("provider/nodes/<uuid:node_id>/drain", people.DrainView.as_view(), name="drain-node"),
    path("provider/nodes/<uuid:node_id>/resume", people.ResumeView.as_view(), name="resume-node"),
    path("provider/nodes/<uuid:node_id>/retire", people.RetireView.as_view(), name="retire-node"),
    path("provider/nodes/<uuid:node_id>/offer", people.NodeOfferView.as_view(), name="node-offer"),
]
