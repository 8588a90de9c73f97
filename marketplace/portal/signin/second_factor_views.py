"""/second-factor: sets one up, asks for its code, and removes it, in this order as far as the session has come."""

from __future__ import annotations

from typing import Any, Final

from cryptography.fernet import InvalidToken
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters

from marketplace.accounts import second_factor, signin, signin_limits
from marketplace.accounts.errors import SecondFactorRefused, SigninLocked, SigninRefused
from marketplace.foundation import signing, totp
from marketplace.foundation.addresses.client_address import client_address
from marketplace.portal.signin.second_step import has_shown, note_shown
from marketplace.portal.visitors import Visitor, own_path, page

ISSUER: Final = "Souk"
PENDING_IN_SESSION: Final = "souk_second_factor_secret"  # of one that is being set up, encrypted
TEMPLATE: Final = "portal/signin/second_factor.html"
MISTYPED: Final = "This is not your password."


@sensitive_post_parameters("code", "password")
@csrf_protect
@page("GET", "POST")
def second_factor_page(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """What is next for this user in this session."""
    user = visitor.user
    if user.second_factor_at is None:
        return _set_up(request, visitor)
    return _remove(request, visitor) if has_shown(request, user) else _ask(request, visitor)


def _set_up(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """The secret, then the password and a code of it; the recovery codes are in the answer, and nowhere else."""
    user, secret = visitor.user, _pending_secret(request)
    shown: dict[str, Any] = {
        "step": "set-up",
        "secret": secret,
        "link": totp.link_for(secret, email=user.email, issuer=ISSUER),
        "is_due": second_factor.is_due(user),
    }
    if request.method == "GET":
        return _show(request, **shown)
    try:
        signin_limits.take(user.email, client_address(request))
        signin.check_password(user.email, request.POST.get("password", ""))
        signin_limits.forgive(user, client_address(request))
        codes = second_factor.enable(user, secret, request.POST.get("code", ""))
    except SigninRefused:
        return _show(request, status=403, error=MISTYPED, **shown)
    except (SecondFactorRefused, SigninLocked) as error:
        return _show(request, status=_status_of(error), error=error.message, **shown)
    request.session.pop(PENDING_IN_SESSION, None)
    note_shown(request, user)
    return _show(request, step="done", codes=codes)


def _ask(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """A code, after the password."""
    if request.method == "GET":
        return _show(request, step="ask")
    try:
        _use_code(request, visitor)
    except (SecondFactorRefused, SigninLocked) as error:
        return _show(request, step="ask", status=_status_of(error), error=error.message)
    note_shown(request, visitor.user)
    return redirect(own_path(request.POST.get(REDIRECT_FIELD_NAME, "")))


def _remove(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Another code removes it; the page then sets up another one, which an operator needs."""
    if request.method == "GET":
        return _show(request, step="remove")
    try:
        _use_code(request, visitor)
    except (SecondFactorRefused, SigninLocked) as error:
        return _show(request, step="remove", status=_status_of(error), error=error.message)
    second_factor.disable(visitor.user)
    return redirect("second-factor")


def _use_code(request: HttpRequest, visitor: Visitor) -> None:
    signin_limits.take_code(visitor.user.email)
    second_factor.check(visitor.user, request.POST.get("code", ""))
    signin_limits.forgive_code(visitor.user.email)


def _pending_secret(request: HttpRequest) -> str:
    """The same until it is used or the session ends, so that a mistyped code costs no second look at the phone."""
    try:
        return signing.decrypt_secret(request.session.get(PENDING_IN_SESSION, ""))
    except InvalidToken:
        secret = totp.make_secret()
        request.session[PENDING_IN_SESSION] = signing.encrypt_secret(secret)
        return secret


def _status_of(error: SecondFactorRefused | SigninLocked) -> int:
    return 403 if isinstance(error, SecondFactorRefused) else error.status


def _show(request: HttpRequest, *, status: int = 200, **context: object) -> HttpResponse:
    after = request.POST.get(REDIRECT_FIELD_NAME) or request.GET.get(REDIRECT_FIELD_NAME) or ""
    return render(request, TEMPLATE, {"next": own_path(after), **context}, status=status)
