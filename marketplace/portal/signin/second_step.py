"""The second step of signing in: a session that has not shown the factor opens only the page that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from marketplace.accounts import second_factor
from marketplace.accounts.models import User
from marketplace.portal.visitors import wants_events, with_private_headers

IN_SESSION: Final = "souk_second_factor"
JSON_PREFIXES: Final = ("/api/", "/artifacts/", "/internal/")
MESSAGE: Final = "Sign in again, with your second factor."

Answer = Callable[[HttpRequest], HttpResponseBase]


def note_shown(request: HttpRequest, user: User) -> None:
    """This session has shown the factor that the user has now; it gets another id, as at every sign-in."""
    request.session.cycle_key()
    request.session[IN_SESSION] = _mark(user)


def has_shown(request: HttpRequest, user: User) -> bool:
    """Whether this session has; a factor that was replaced since counts for nothing."""
    return user.second_factor_at is not None and request.session.get(IN_SESSION) == _mark(user)


def require_second_factor(get_response: Answer) -> Answer:
    """Middleware, after the one that knows the session's user: of a session only. An API key was made in two steps."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return get_response(request)
        user = request.user
        if not isinstance(user, User) or not second_factor.is_needed(user) or has_shown(request, user):
            return get_response(request)
        page = reverse("second-factor")
        if request.path in {page, reverse("signout")} or request.path.startswith("/static/"):
            return get_response(request)
        address = f"{page}?{urlencode({REDIRECT_FIELD_NAME: request.get_full_path()})}"
        if request.path.startswith(JSON_PREFIXES):
            body = {"code": "second_factor_required", "message": MESSAGE, "details": {}}
            return JsonResponse(body, status=403)
        if wants_events(request) or request.headers.get("HX-Request"):
            return JsonResponse({"message": MESSAGE}, status=401, headers={"HX-Redirect": address})
        return with_private_headers(redirect(page if request.method == "POST" else address))

    return answer


def _mark(user: User) -> str:
    return user.second_factor_at.isoformat() if user.second_factor_at else ""
