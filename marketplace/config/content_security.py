"""Every answer says what a browser may load for it: nothing from elsewhere, and no script within the page.

A page that sets its own policy keeps it: those of signed-in users allow no style within the page either
(marketplace/portal/visitors.py). The public ones and the API's docs have some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

HEADER: Final = "Content-Security-Policy"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


Answer = Callable[[HttpRequest], HttpResponseBase]


def say_what_may_load(get_response: Answer) -> Answer:
    """Middleware, outside of all that may answer by itself."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault(HEADER, POLICY)
        return response

    return answer
