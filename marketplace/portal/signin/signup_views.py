"""/signup/confirm/...: the page that the link in the mail opens; a mail program that looks at it makes nothing."""

from __future__ import annotations

from typing import Final

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
)
from marketplace.foundation.addresses.client_address import client_address
from marketplace.portal.visitors import with_private_headers

REFUSALS = (EmailTaken, InvitationRefused, SigninLocked, SignupClosed, SignupLinkRefused)
WRONG: Final = "This is not the password that was chosen at the sign-up. If you did not sign up yourself, sign up anew."


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
