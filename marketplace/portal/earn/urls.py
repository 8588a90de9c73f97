"""The addresses of a provider's pages."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.earn import actions, views

urlpatterns = [
    path("earn", views.earn_page, name="earn-page"),
    path("earn/nodes", actions.add_node, name="earn-add"),
    path("earn/joining/<uuid:token_id>", views.joining, name="earn-joining"),
    path("earn/nodes/<uuid:node_id>", views.own_node_page, name="own-node-page"),
    path("earn/nodes/<uuid:node_id>/drain", actions.drain, name="own-node-drain"),
    path("earn/nodes/<uuid:node_id>/resume", actions.resume, name="own-node-resume"),
    path("earn/nodes/<uuid:node_id>/price", actions.set_price, name="own-node-price"),
]
