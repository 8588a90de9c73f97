"""Middleware: a zero byte in an address or a form is a bad request, before PostgreSQL is given it, which holds none."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from marketplace.config.api_errors import JSON_PREFIXES, bad_request

ZERO_BYTES = ("\0", "%00")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def refuse_zero_bytes(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Path, query and the portal's forms; JSON bodies have their own check (`marketplace.foundation.parsers`)."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        query = request.META.get("QUERY_STRING", "")
        if "\0" in request.path_info or any(each in query for each in ZERO_BYTES):
            return bad_request(request, BadRequest("a zero byte in the address"))
        if request.content_type in FORMS and not request.path_info.startswith(JSON_PREFIXES) and _has_in_form(request):
            return bad_request(request, BadRequest("a zero byte in a form"))
        return get_response(request)

    return middleware


def _has_in_form(request: HttpRequest) -> bool:
    return any("\0" in text for name, texts in request.POST.lists() for text in (name, *texts))
