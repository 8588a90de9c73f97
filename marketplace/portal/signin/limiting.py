"""How many attempts a minute one address may make on these pages and by the API together."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.views import APIView

from marketplace.foundation.throttles import ScopedThrottle

TOO_OFTEN: Final = "Too many attempts. Please wait a minute, then try again."


class _SigninScope(APIView):
    """The view that the throttle is given: sign-ins by the API and by these pages are counted together, by address."""

    throttle_scope = "signin"


def may_attempt(request: HttpRequest) -> bool:
    """Whether this attempt is within SOUK_THROTTLE_SIGNIN; it is counted."""
    return ScopedThrottle().allow_request(Request(request), _SigninScope())
