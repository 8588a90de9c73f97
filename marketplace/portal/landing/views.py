"""The front page."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import patch_cache_control

from marketplace.accounts.models import User
from marketplace.portal.landing.counts import count_market
from marketplace.portal.visitors import CONTENT_SECURITY_POLICY, visitor_of, with_private_headers

FRESH_SECONDS = 5


def landing(request: HttpRequest) -> HttpResponseBase:
    """What this marketplace is and what it has now; everybody may see it."""
    visitor = visitor_of(request, request.user) if isinstance(request.user, User) else None
    context = {"visitor": visitor, "market": count_market(), "api_url": settings.SOUK_API_URL}
    response = render(request, "portal/landing/landing.html", context)
    if visitor is not None:
        return with_private_headers(response)
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    patch_cache_control(response, public=True, max_age=FRESH_SECONDS)
    return response
