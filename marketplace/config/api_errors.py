"""Every error that leaves the API is `{"code", "message", "details"}`, wherever it was raised.

- `handle` is the one exception handler of the REST views;
- `NamedErrors` does the same for plain Django views (uploads, downloads);
- `not_found` and its kin answer what no view was found for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pydantic
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views import defaults
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import set_rollback

from marketplace.foundation.errors import NotFound, SoukError

log = logging.getLogger(__name__)

JSON_PREFIXES = ("/api/", "/artifacts/", "/dist/", "/internal/", "/install.sh")
FIELD_ERRORS_MAX = 100
# DRF's own code -> ours, where ours is more exact.
_CODES = {"invalid": "invalid_request", "parse_error": "invalid_request", "error": "error"}


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to an error of a REST view; None for an unforeseen one, which becomes a logged 500."""
    body = _describe(error)
    if body is None:
        return None
    set_rollback()
    request = context.get("request")
    if request is not None:  # who asked for a PDF or a table is told in JSON why there is none
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    status, code, message, details = body
    headers = {}
    if isinstance(error, exceptions.APIException):
        if auth_header := getattr(error, "auth_header", None):
            headers["WWW-Authenticate"] = auth_header
        if (wait := getattr(error, "wait", None)) is not None:
            headers["Retry-After"] = str(math.ceil(wait))
    elif "retry_after_seconds" in details:
        headers["Retry-After"] = str(math.ceil(details["retry_after_seconds"]))
    return Response({"code": code, "message": message, "details": details}, status=status, headers=headers)


class NamedErrors:
    """Middleware: a SoukError or a pydantic error that a plain view raises is answered like one of a REST view."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not request.path.startswith(JSON_PREFIXES) or not isinstance(error, SoukError | pydantic.ValidationError):
            return None
        body = _describe(error)
        return _json(*body) if body else None


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """handler400."""
    if request.path.startswith(JSON_PREFIXES):
        return _json(400, "bad_request", "The request cannot be understood.")
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """handler403."""
    if request.path.startswith(JSON_PREFIXES):
        return _json(403, "forbidden", "You may not do this.")
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """handler404."""
    if request.path.startswith(JSON_PREFIXES):
        return _json(404, NotFound.code, f"There is nothing at {request.path}.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """handler500; Django has logged the traceback."""
    if request.path.startswith(JSON_PREFIXES):
        return _json(500, "internal_error", "Something broke on our side. It was logged; try again.")
    return defaults.server_error(request)


def _describe(error: Exception) -> tuple[int, str, str, dict[str, Any]] | None:  # noqa: PLR0911  a table by type
    """status, code, message, details of an error that we know."""
    if isinstance(error, SoukError):
        return error.status, error.code, error.message, error.details
    if isinstance(error, pydantic.ValidationError):
        return _describe_pydantic(error)
    if isinstance(error, Http404):
        return 404, NotFound.code, "There is no such thing, or it is not yours.", {}
    if isinstance(error, PermissionDenied):
        return 403, "forbidden", str(error) or "You may not do this.", {}
    if isinstance(error, exceptions.ValidationError):
        detail = error.detail
        fields = detail if isinstance(detail, dict) else {"request": detail}
        return 400, "invalid_request", _first_message(fields), {"fields": fields}
    if isinstance(error, exceptions.APIException):
        code = str(getattr(error.detail, "code", None) or error.default_code)
        return error.status_code, _CODES.get(code, code), str(error.detail), {}
    return None


def _describe_pydantic(error: pydantic.ValidationError) -> tuple[int, str, str, dict[str, Any]]:
    # Never the input itself: it may be a secret.
    found = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [{"at": ".".join(map(str, one["loc"])), "message": one["msg"]} for one in found[:FIELD_ERRORS_MAX]]
    first = errors[0]
    where = f"{first['at']}: " if first["at"] else ""
    return 400, "invalid_request", f"{where}{first['message']}", {"errors": errors}


def _first_message(fields: Any, at: str = "") -> str:
    """`name: This field is required.` of the first wrong field, however deep it lies."""
    while isinstance(fields, dict | list) and fields:
        if isinstance(fields, dict):
            name, fields = next(iter(fields.items()))
            at = f"{at}.{name}".lstrip(".") if name not in {"non_field_errors", "request"} else at
        else:
            fields = next((one for one in fields if one), "")
    return f"{at}: {fields}" if at else str(fields)


def _json(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> JsonResponse:
    return JsonResponse({"code": code, "message": message, "details": details or {}}, status=status)
