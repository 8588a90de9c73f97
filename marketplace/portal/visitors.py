"""Pages for signed-in users: who it is, in whose name, what a browser may load there, and refusals as sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Final, ParamSpec, cast
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.http import url_has_allowed_host_and_scheme
from rest_framework.request import Request
from rest_framework.views import APIView

from marketplace.accounts import signup
from marketplace.accounts.errors import EmailUnverified
from marketplace.accounts.models import Membership, Organisation, User
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.foundation.errors import Forbidden, SoukError
from marketplace.foundation.throttles import AnonThrottle, UserThrottle
from marketplace.portal.errors import TooManyRequests

ORGANISATION_IN_SESSION: Final = "souk_organisation"
RETRY_AFTER_SECONDS: Final = "5"
ORGANISATIONS_MAX: Final = 100  # that a user is shown
NEXT_CHARACTERS_MAX: Final = 500
# Nothing from elsewhere, no script or style inside the page: what a model writes cannot run even if it became HTML.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

# Places on pages for answers; of the first the element itself is replaced.
REPLACED_WHOLE: Final = "mistakes"
ANSWER_PLACES: Final = frozenset({REPLACED_WHOLE, "answer"})

READ_SCOPES: Final = frozenset({Scope.JOBS_READ, Scope.BILLING_READ, Scope.PROVIDER_READ})

Rest = ParamSpec("Rest")


@dataclass(frozen=True)
class Visitor:
    """A signed-in user, and the organisation in whose name they act; None: they are in none."""

    user: User
    organisation: Organisation | None
    organisations: list[Organisation]
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Their role includes it."""
        return scope in self.scopes


Page = Callable[Concatenate[HttpRequest, Visitor, Rest], HttpResponseBase]
View = Callable[Concatenate[HttpRequest, Rest], HttpResponseBase]


def page(*methods: str) -> Callable[[Page[Rest]], View[Rest]]:
    """A view for signed-in users, by these methods; others are sent to sign in. Its named errors become sentences."""

    def decorate(view: Page[Rest]) -> View[Rest]:
        def wrapped(request: HttpRequest, /, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponseBase:
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            if not isinstance(request.user, User):
                return _to_signin(request)
            visitor = visitor_of(request, request.user)
            try:
                require_moderation(request)
                return with_private_headers(view(request, visitor, *args, **kwargs))
            except SoukError as error:
                return with_private_headers(_refused(request, visitor, error))

        return cast("View[Rest]", wraps(view)(wrapped))

    return decorate


def visitor_of(request: HttpRequest, user: User) -> Visitor:
    """The user of the request; of several organisations the one chosen last in this session, else the oldest."""
    memberships = list(
        Membership.objects.filter(user=user).select_related("organisation").order_by("created_at")[:ORGANISATIONS_MAX]
    )
    chosen = request.session.get(ORGANISATION_IN_SESSION)
    current = next((one for one in memberships if str(one.organisation_id) == chosen), None)
    current = current or next(iter(memberships), None)
    return Visitor(
        user=user,
        organisation=current.organisation if current else None,
        organisations=[one.organisation for one in memberships],
        scopes=_scopes_of(user, current),
    )


def _scopes_of(user: User, current: Membership | None) -> frozenset[str]:
    scopes = ROLE_SCOPES[current.role] if current else frozenset()
    return scopes & READ_SCOPES if signup.is_unverified(user) else scopes


def organisation_of(visitor: Visitor, scope: Scope, doing: str) -> Organisation:
    """In whose name the visitor acts. Raises Forbidden where they are in none, or their role does not include it."""
    if visitor.organisation is None:
        raise Forbidden("You belong to no organisation yet. Ask an owner of one to invite you.")
    if not visitor.may(scope):
        if signup.is_unverified(visitor.user) and scope not in READ_SCOPES:
            raise EmailUnverified(address=f"{settings.SOUK_API_URL}{reverse('password-forgotten')}")
        raise Forbidden(f"Your role does not include {doing}. An owner of the organisation can change that.")
    return visitor.organisation


def actor_of(visitor: Visitor) -> str:
    """As `foundation.actors` writes who asks by the API."""
    return f"{visitor.organisation.pk}:{visitor.user.pk}" if visitor.organisation else str(visitor.user.pk)


def uuid_of(text: str) -> UUID | None:
    """None for what is no id."""
    try:
        return UUID(text)
    except ValueError:
        return None


def with_private_headers(response: HttpResponseBase) -> HttpResponseBase:
    """With the headers that keep what is private on the page: kept nowhere, framed nowhere, loading only our own."""
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response.headers["Referrer-Policy"] = "same-origin"
    add_never_cache_headers(response)
    return response


def own_path(wanted: str) -> str:
    """Where to go afterwards: only to a path of ours; to the chats where it is none."""
    is_path = wanted.startswith("/") and len(wanted) <= NEXT_CHARACTERS_MAX
    if is_path and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None):
        return wanted
    return reverse("chats")


def wants_events(request: HttpRequest) -> bool:
    """The request is from our own script, not from a browser's form."""
    return "text/event-stream" in request.headers.get("Accept", "")


def require_moderation(request: HttpRequest) -> None:
    """Raises TooManyRequests: what a user, or an address, asks by these pages and by the API is counted together."""
    asked = Request(request)
    asked.user = request.user
    throttle = UserThrottle() if request.user.is_authenticated else AnonThrottle()
    if not throttle.allow_request(asked, APIView()):
        raise TooManyRequests


def _to_signin(request: HttpRequest) -> HttpResponse:
    page_shown = own_path(urlsplit(request.headers.get("HX-Current-URL", "")).path) if _is_part(request) else ""
    address = f"{reverse('signin')}?{urlencode({REDIRECT_FIELD_NAME: page_shown or request.get_full_path()})}"
    message = "You are signed out. Load the page again to sign in."
    if _has_place(request):  # what was typed stays on the page
        return _refused_part(request, "You are signed out. Sign in in another tab, then try again.")
    if wants_events(request) or _is_part(request):
        return JsonResponse({"message": message}, status=401, headers={"HX-Redirect": address})
    return redirect(reverse("signin") if request.method == "POST" else address)


def _refused_part(request: HttpRequest, message: str) -> HttpResponse:
    """In the place of what was asked for: htmx shows no answer that is an error."""
    place = request.headers.get("HX-Target", "")
    context = {"message": message, "id": place if place == REPLACED_WHOLE else "refused"}
    return render(request, "portal/refused_part.html", context)


def _has_place(request: HttpRequest) -> bool:
    return _is_part(request) and request.headers.get("HX-Target", "") in ANSWER_PLACES


def _is_part(request: HttpRequest) -> bool:
    """htmx asks for a part of a page."""
    return request.headers.get("HX-Request") == "true"


def _refused(request: HttpRequest, visitor: Visitor, error: SoukError) -> HttpResponse:
    if wants_events(request):
        response: HttpResponse = JsonResponse({"message": error.message}, status=error.status)
    elif _has_place(request):
        return _refused_part(request, error.message)
    else:
        context = {"error": error, "visitor": visitor}
        response = render(request, "portal/refused.html", context, status=error.status)
    if error.status == 503:
        response.headers["Retry-After"] = RETRY_AFTER_SECONDS
    return response
