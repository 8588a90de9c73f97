"""The headers of a request that the gateway reads, and those that it adds to every answer."""

from __future__ import annotations

import re
from collections.abc import Collection
from uuid import UUID

from jobs.gateway.errors import ApiError
from jobs.gateway.inference_request import Header

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
CORS_HEADERS: list[Header] = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type, x-request-id, x-souk-hedge"),
    (b"access-control-max-age", b"600"),
]
_EXPOSED = b"x-request-id, retry-after, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens"


def own_headers(request_id: UUID, headers: dict[bytes, bytes], origins: Collection[bytes]) -> list[Header]:
    """What every answer has: the request's id, the caller's own id for it, and CORS for an allowed origin."""
    own: list[Header] = [(b"x-request-id", str(request_id).encode())]
    theirs = headers.get(b"x-client-request-id") or headers.get(b"x-request-id")
    if theirs is not None and _SANE_ID.fullmatch(theirs):
        own.append((b"x-client-request-id", theirs))
    if origins:
        own.append((b"vary", b"origin"))
        origin = headers.get(b"origin")
        if origin is not None and origin in origins:
            own.append((b"access-control-allow-origin", origin))
            own.append((b"access-control-expose-headers", _EXPOSED))
    return own


def require_method(method: str, allowed: str) -> None:
    """Raises ApiError 405 for any other method; HEAD goes where GET goes."""
    if method != allowed and not (allowed == "GET" and method == "HEAD"):
        raise ApiError(405, "method_not_allowed", f"This address takes {allowed} only.")


def read_key(headers: dict[bytes, bytes]) -> str:
    """The key of `Authorization: Bearer`. Raises ApiError 401."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not key:
        raise ApiError(
            401,
            "missing_api_key",
            "You didn't provide an API key. Send it as a header: Authorization: Bearer YOUR_KEY.",
        )
    return key.strip().decode("latin-1")


def require_json(headers: dict[bytes, bytes]) -> None:
    """Raises ApiError 415 for a body that is not declared as JSON."""
    media = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if media != b"application/json":
        raise ApiError(415, "unsupported_media_type", "Send the body as application/json.")
