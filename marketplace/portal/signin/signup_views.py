"""/signup, and /signup/confirm/...: the page that the mailed link opens; a mail program that looks makes nothing."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from marketplace.accounts import signin_limits, signup
from marketplace.accounts.errors import (
    EmailTaken,
    InvitationRefused,
    SigninLocked,
    SigninRefused,
    SignupClosed,
    SignupLinkRefused,
    WeakPassword,
)
from marketplace.accounts.serializers import SignupRequest
from marketplace.foundation.addresses.client_address import client_address
from marketplace.portal.signin.limiting import TOO_OFTEN, may_attempt
from marketplace.portal.visitors import with_private_headers

REFUSALS = (EmailTaken, InvitationRefused, SigninLocked, SignupClosed, SignupLinkRefused)
SIGNUP_FIELDS: Final = ("email", "password", "name", "organisation", "invitation")
WRONG: Final = "This is not the password that was chosen at the sign-up. If you did not sign up yourself, sign up anew."


@sensitive_post_parameters("password")
@csrf_protect
@require_http_methods(["GET", "POST"])
def sign_up(request: HttpRequest) -> HttpResponseBase:
    """The form; an account at once, or by the link that is mailed, as the operator wants it."""
    asked = SignupRequest(data={name: request.POST.get(name, "") for name in SIGNUP_FIELDS})
    if request.method == "GET":
        given = {"email": request.GET.get("email", ""), "invitation": request.GET.get("invitation", "")}
        return _show_form(request, asked=given)
    kept = {name: value for name, value in asked.initial_data.items() if name != "password"}
    if not may_attempt(request):
        return _show_form(request, asked=kept, error=TOO_OFTEN, status=429)
    if not asked.is_valid():
        return _show_form(request, asked=kept, error=_mistakes(asked.errors), status=400)
    data = dict(asked.validated_data)
    data["organisation_name"] = data.pop("organisation")
    try:
        if signup.is_verified_by_mail():
            signup.request(address=client_address(request), **data)
            return _show_form(request, asked=kept, is_sent=True)
        made = signup.sign_up(**data)
    except (*REFUSALS, WeakPassword) as error:
        return _show_form(request, asked=kept, error=error.message, status=error.status)
    login(request, made.user)
    return redirect("jobs-page")


def _mistakes(errors: Any) -> str:
    """Of the first field that is wrong."""
    name, found = next(iter(errors.items()))
    return f"{name.capitalize()}: {found[0]}"


def _show_form(request: HttpRequest, *, status: int = 200, **context: object) -> HttpResponseBase:
    return with_private_headers(render(request, "portal/signin/signup.html", context, status=status))


@sensitive_post_parameters("password")
@csrf_protect
@require_http_methods(["GET", "POST"])
def confirm(request: HttpRequest, text: str) -> HttpResponseBase:
    """Show whose account it is, and make it."""
    try:
        email, address = signup.find_pending(text).email, client_address(request)
        if request.method == "GET":
            return _show(request, email=email)
        signin_limits.take(email, address)
        made = signup.confirm(text, request.POST.get("password", ""))
        signin_limits.forgive(made.user, address)
    except SigninRefused:
        return _show(request, email=email, wrong=WRONG, status=403)
    except REFUSALS as error:
        return _show(request, error=error.message, status=error.status)
    return redirect("signin")


def _show(request: HttpRequest, *, status: int = 200, **context: object) -> HttpResponseBase:
    response: HttpResponse = render(request, "portal/signin/confirm.html", context, status=status)
    return with_private_headers(response)
