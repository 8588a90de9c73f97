"""/signin and /signout, by Django's sessions; the admin's own sign-in leads here, so that there is one."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from django.contrib.auth import REDIRECT_FIELD_NAME, login, logout
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from marketplace.accounts import signin, signin_limits
from marketplace.accounts.errors import SigninLocked, SigninRefused
from marketplace.foundation.addresses.client_address import client_address
from marketplace.portal.signin.limiting import TOO_OFTEN, may_attempt
from marketplace.portal.visitors import own_path, with_private_headers

WRONG: Final = "There is no account with this address and this password."
NOT_STAFF: Final = "You are signed in, but not an operator. Sign in as one to see these pages."


@sensitive_post_parameters("password")
@csrf_protect
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponseBase:
    """The form, and what it sends. A session begins anew, so that none can have been planted."""
    after = own_path(request.POST.get(REDIRECT_FIELD_NAME) or request.GET.get(REDIRECT_FIELD_NAME) or "")
    if request.method == "GET":
        return redirect(after) if request.user.is_authenticated else with_private_headers(_form(request, after))
    if not may_attempt(request):
        return with_private_headers(_form(request, after, error=TOO_OFTEN, status=429))
    email, address = request.POST.get("email", "").strip().lower(), client_address(request)
    try:
        signin_limits.take(email, address)
        user = signin.check_password(email, request.POST.get("password", ""))
    except SigninRefused:
        return with_private_headers(_form(request, after, error=WRONG, email=email, status=403))
    except SigninLocked as error:
        return with_private_headers(_form(request, after, error=error.message, email=email, status=error.status))
    signin_limits.forgive(user, address)
    login(request, user)
    return redirect(after)


@require_http_methods(["GET", "POST"])
def sign_in_to_admin(request: HttpRequest) -> HttpResponseBase:
    """The admin's pages send everybody here who is not an operator."""
    if request.user.is_authenticated and not request.user.is_staff:
        return with_private_headers(_form(request, reverse("admin:index"), error=NOT_STAFF, status=403))
    after = own_path(request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index"))
    return redirect(f"{reverse('signin')}?{urlencode({REDIRECT_FIELD_NAME: after})}")


@csrf_protect
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """The session ends."""
    logout(request)
    return redirect("signin")


def _form(request: HttpRequest, after: str, *, error: str = "", email: str = "", status: int = 200) -> HttpResponse:
    context = {"next": after, "error": error, "email": email}
    return render(request, "portal/signin/signin.html", context, status=status)
