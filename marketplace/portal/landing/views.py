"""The front page."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import cache_control

from marketplace.portal.landing.counts import count_market

FRESH_SECONDS = 5


@cache_control(public=True, max_age=FRESH_SECONDS)
def landing(request: HttpRequest) -> HttpResponse:
    """What this marketplace is and what it has now; everybody may see it."""
    return render(request, "portal/landing/landing.html", {"market": count_market(), "api_url": settings.SOUK_API_URL})
