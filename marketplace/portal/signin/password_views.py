"""/password, /password/forgotten and /password/reset/...: changing a password, and setting a forgotten one anew."""

from __future__ import annotations

from typing import Final

from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from marketplace.accounts import passwords, signin, signin_limits
from marketplace.accounts.errors import PasswordsDiffer, ResetRefused, SigninLocked, SigninRefused, WeakPassword
from marketplace.accounts.passwords import NewPassword
from marketplace.foundation.addresses.client_address import client_address
from marketplace.portal.signin.limiting import TOO_OFTEN, may_attempt
from marketplace.portal.signin.reset_mail import request_reset
from marketplace.portal.visitors import Visitor, page, with_private_headers

EMAIL_CHARACTERS_MAX: Final = 254
WRONG: Final = "This is not your password."


@csrf_protect
@require_http_methods(["GET", "POST"])
def forgotten(request: HttpRequest) -> HttpResponseBase:
    """Ask for the mail; the answer is the same whether the address has an account or not."""
    template = "portal/signin/forgotten.html"
    if request.method == "GET":
        return _show(request, template)
    if not may_attempt(request):
        return _show(request, template, error=TOO_OFTEN, status=429)
    email = request.POST.get("email", "").strip().lower()[:EMAIL_CHARACTERS_MAX]
    try:
        request_reset(email, client_address(request))
    except SigninLocked as error:
        return _show(request, template, error=error.message, status=error.status)
    return _show(request, template, is_sent=True)


@sensitive_post_parameters("password", "again")
@csrf_protect
@require_http_methods(["GET", "POST"])
def reset(request: HttpRequest, user_id: str, token: str) -> HttpResponseBase:
    """The page that the mailed link opens."""
    template = "portal/signin/reset.html"
    try:
        if request.method == "GET":
            return _show(request, template, email=passwords.find_for_reset(user_id, token).email)
        passwords.reset(user_id, token, _asked(request))
    except ResetRefused as error:
        return _show(request, "portal/signin/forgotten.html", error=error.message, status=error.status)
    except (PasswordsDiffer, WeakPassword) as error:
        email = passwords.find_for_reset(user_id, token).email
        return _show(request, template, error=error.message, email=email, status=error.status)
    return redirect("signin")


@sensitive_post_parameters("old", "password", "again")
@csrf_protect
@page("GET", "POST")
def change(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Another password for who is signed in and has the old one; wrong ones count as at signing in."""
    template, address = "portal/signin/change.html", client_address(request)
    if request.method == "GET":
        return _show(request, template)
    try:
        signin_limits.take(visitor.user.email, address)
        signin.check_password(visitor.user.email, request.POST.get("old", ""))
        signin_limits.forgive(visitor.user, address)
        user = passwords.set_password(visitor.user, _asked(request))
    except SigninRefused:
        return _show(request, template, error=WRONG, status=403)
    except (SigninLocked, PasswordsDiffer, WeakPassword) as error:
        return _show(request, template, error=error.message, status=error.status)
    update_session_auth_hash(request, user)
    return redirect("chats")


def _asked(request: HttpRequest) -> NewPassword:
    form = request.POST
    return NewPassword(form.get("password", ""), form.get("again", ""), revoke_tokens="revoke_tokens" in form)


def _show(request: HttpRequest, template: str, *, status: int = 200, **context: object) -> HttpResponseBase:
    response: HttpResponse = render(request, template, context, status=status)
    return with_private_headers(response)
