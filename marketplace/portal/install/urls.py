"""The addresses from which a computer becomes a node."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.install import node_views, views

urlpatterns = [
    path("install.sh", views.install_script, name="install-script"),
    path("dist/manifest.json", views.manifest, name="release-manifest"),
    path("dist/manifest.sig", views.manifest_signature, name="release-signature"),
    path("dist/releases/<str:version>/manifest.json", views.release_manifest, name="release-manifest-of"),
    path("dist/releases/<str:version>/manifest.sig", views.release_signature, name="release-signature-of"),
    path("dist/bandwidth", views.bandwidth, name="bandwidth"),
    path("dist/<str:name>", views.wheel, name="agent-wheel"),
    path("nodes/<uuid:node_id>", node_views.node_page, name="node-page"),
    path("nodes/<uuid:node_id>.json", node_views.node_state, name="node-state"),
]
