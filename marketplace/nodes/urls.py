"""Routes of this room for people, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from marketplace.nodes import api

urlpatterns = [
    path("offers", api.OffersView.as_view(), name="offers"),
    path("provider", api.ProviderView.as_view(), name="provider"),
    path("provider/enrolment-tokens", api.EnrolmentTokensView.as_view(), name="enrolment-tokens"),
    path("provider/nodes", api.NodesView.as_view(), name="nodes"),
    path("provider/nodes/<uuid:node_id>", api.NodeView.as_view(), name="node"),
    path("provider/nodes/<uuid:node_id>/checks", api.NodeChecksView.as_view(), name="node-checks"),
    path("provider/nodes/<uuid:node_id>/reputation", api.NodeReputationView.as_view(), name="node-reputation"),
    path("provider/nodes/<uuid:node_id>/metrics", api.NodeMetricsView.as_view(), name="node-metrics"),
    path("provider/nodes/<uuid:node_id>/schedule", api.NodeScheduleView.as_view(), name="node-schedule"),
    path("provider/nodes/<uuid:node_id>/drain", api.DrainView.as_view(), name="drain-node"),
    path("provider/nodes/<uuid:node_id>/resume", api.ResumeView.as_view(), name="resume-node"),
    path("provider/nodes/<uuid:node_id>/retire", api.RetireView.as_view(), name="retire-node"),
    path("provider/nodes/<uuid:node_id>/offer", api.NodeOfferView.as_view(), name="node-offer"),
]
