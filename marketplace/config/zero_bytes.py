"""Middleware: a zero byte in an address is a bad request, before a view gives it to PostgreSQL, which holds none."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from marketplace.config.api_errors import bad_request

ZERO_BYTES = ("\0", "%00")


def refuse_zero_bytes(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Path and query; JSON bodies have their own check (`marketplace.foundation.parsers`), forms have Django's."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        query = request.META.get("QUERY_STRING", "")
        if "\0" in request.path_info or any(each in query for each in ZERO_BYTES):
            return bad_request(request, BadRequest("a zero byte in the address"))
        return get_response(request)

    return middleware
