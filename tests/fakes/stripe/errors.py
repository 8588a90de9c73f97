"""Stripe's errors as they go over the wire: an HTTP status and an object with type, code, message and param."""

from __future__ import annotations

from typing import Any


class WireError(Exception):
    """An answer other than 200; `is_stored` says whether an idempotency key replays it."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        code: str = "",
        param: str = "",
        is_stored: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.is_stored = is_stored
        self.error: dict[str, Any] = {"type": kind, "message": message}
        if code:
            self.error |= {"code": code, "doc_url": f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"}
        if param:
            self.error["param"] = param
        self.error |= more


def invalid(message: str, *, code: str = "", param: str = "", **more: Any) -> WireError:
    """The caller's request is not possible; the endpoint had begun, so the answer is stored."""
    return WireError(400, "invalid_request_error", message, code=code, param=param, **more)


def unusable(message: str, *, code: str, param: str) -> WireError:
    """A parameter that fails validation: nothing begins, and nothing is stored under the idempotency key."""
    return WireError(400, "invalid_request_error", message, code=code, param=param, is_stored=False)


def missing(param: str) -> WireError:
    return unusable(f"Missing required param: {param}.", code="parameter_missing", param=param)


def absent(noun: str, object_id: str, *, param: str = "id") -> WireError:
    message = f"No such {noun}: '{object_id}'"
    return WireError(404, "invalid_request_error", message, code="resource_missing", param=param)


def declined(code: str, decline_code: str, message: str, **more: Any) -> WireError:
    if decline_code:
        more["decline_code"] = decline_code
    return WireError(402, "card_error", message, code=code, **more)


def unauthorized(key: str) -> WireError:
    shown = f"{key[:8]}{'*' * 8}{key[-4:]}" if key else "none"
    return WireError(401, "invalid_request_error", f"Invalid API Key provided: {shown}", is_stored=False)


def unrouted(method: str, path: str) -> WireError:
    message = f"Unrecognized request URL ({method}: {path})."
    return WireError(404, "invalid_request_error", message, is_stored=False)


def broken() -> WireError:
    message = "An unexpected error occurred and we have been notified. Please contact us if the problem persists."
    return WireError(500, "api_error", message)
