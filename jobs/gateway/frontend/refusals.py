"""The refusals of the HTTP entry point, and the headers that go with any refusal."""

from __future__ import annotations

import math

from jobs.gateway.errors import ApiError
from jobs.gateway.inference_request import Header

JSON: Header = (b"content-type", b"application/json")


def no_model(model: str) -> ApiError:
    """The same whether it is not there or not for this key."""
    return ApiError(
        404,
        "model_not_found",
        f"The model {model[:200]!r} does not exist or you do not have access to it.",
        param="model",
    )


def overloaded(message: str) -> ApiError:
    """Nothing was done; the next try may find free capacity."""
    return ApiError(503, "server_overloaded", message, type="server_error", retry_after=1)


def too_large(most: int) -> ApiError:
    """More bytes than a body may have."""
    return ApiError(413, "request_too_large", f"The body may have {most} bytes at most.")


def closed(why: str) -> ApiError:
    """Its owner stopped it, or nothing is left of its budget."""
    return ApiError(
        503, "model_unavailable", f"The model takes no requests now: {why}.", type="server_error", retry_after=30
    )


def failed() -> ApiError:
    """An error of this program; the log has its details."""
    return ApiError(500, "internal_error", "The gateway failed; it has been noted.", type="server_error")


def error_headers(error: ApiError) -> list[Header]:
    """The headers of a refusal: its type, and whether and when a client should try again."""
    headers = [JSON]
    if error.status == 405:
        headers.append((b"allow", b"POST" if "POST" in error.message else b"GET, HEAD"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    elif error.status in {429, 503}:
        headers.append((b"x-should-retry", b"false"))  # OpenAI's client would try again otherwise
    return headers
