"""The front page, what a computer needs to become a node, and the pages for signed-in users."""

from __future__ import annotations

from django.urls import include, path

from marketplace.portal import installing
from marketplace.portal.chat.views import chats
from marketplace.portal.signing_in import sign_in, sign_out
from marketplace.portal.solvency import solvency_page
from marketplace.portal.usage import usage_csv, usage_page
from marketplace.portal.views import landing

urlpatterns = [
    path("", landing, name="landing"),
    path("signin", sign_in, name="signin"),
    path("signout", sign_out, name="signout"),
    path("chat", chats, name="chats"),
    path("chat/", include("marketplace.portal.chat.urls")),
    path("usage", usage_page, name="usage-page"),
    path("usage.csv", usage_csv, name="usage-csv"),
    path("solvency", solvency_page, name="solvency-page"),
    path("install.sh", installing.install_script, name="install-script"),
    path("dist/manifest.json", installing.manifest, name="release-manifest"),
    path("dist/manifest.sig", installing.manifest_signature, name="release-signature"),
    path("dist/releases/<str:version>/manifest.json", installing.release_manifest, name="release-manifest-of"),
    path("dist/releases/<str:version>/manifest.sig", installing.release_signature, name="release-signature-of"),
    path("dist/bandwidth", installing.bandwidth, name="bandwidth"),
    path("dist/<str:name>", installing.wheel, name="agent-wheel"),
    path("nodes/<uuid:node_id>", installing.node_page, name="node-page"),
    path("nodes/<uuid:node_id>.json", installing.node_state, name="node-state"),
]
