"""Every address of the web process."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

from marketplace.config.api_schema import api_schema
from marketplace.config.health import healthz
from marketplace.config.metrics import metrics

admin.site.site_header = admin.site.site_title = "Souk"
admin.site.index_title = "Operations"

PUBLIC_API = [
    path("", include("marketplace.accounts.urls")),
    path("", include("marketplace.nodes.urls")),
    path("", include("billing.urls")),
    path("", include("jobs.urls")),
]
AGENT_API = [
    path("", include("marketplace.nodes.agent_urls")),
    path("", include("jobs.api.agent_urls")),
]
# The same for everybody: a key is not looked at. Its script is a file of its own, since the page may run none within
# it; OPTIONS, which has no template, is refused.
docs = SpectacularSwaggerSplitView.as_view(
    url_name="schema", permission_classes=[AllowAny], authentication_classes=[], metadata_class=None
)
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("marketplace.portal.urls")),  # first: admin/login/ is the portal's, which knows limits
    path("api/v1/", include(PUBLIC_API)),
    path("api/agent/v1/", include(AGENT_API)),
    path("internal/gateway/v1/", include("jobs.api.gateway_urls")),
    path("artifacts/", include("jobs.artifacts.urls")),
    path("api/schema", api_schema, name="schema"),
    path("api/docs", docs, name="docs"),
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
    path("metrics", metrics, name="metrics"),
]

handler400 = "marketplace.config.api_errors.bad_request"
handler403 = "marketplace.config.api_errors.permission_denied"
handler404 = "marketplace.config.api_errors.not_found"
handler500 = "marketplace.config.api_errors.server_error"
