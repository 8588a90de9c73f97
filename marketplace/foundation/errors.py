"""The root of all errors that the server raises on purpose.

    SoukError                     code, status, message, details -> {"code", "message", "details"}
    |-- StateConflict             409  another process moved the row first, or the move is not allowed
    |-- IdempotencyMismatch       409  the key was used for another request
    |-- IdempotencyInProgress     409  the first request with the key has not finished
    |-- OutboxConflict            409  a business key was used for another call to the outside
    |-- NotFound                  404
    |-- Forbidden                 403
    |   `-- IdempotencyKeyNotYours 403 the first answer is for somebody who may do more
    `-- BadRequest                400
        `-- IdempotencyKeyRefused 400  missing where it is required, or not a key

Each package derives its own from these; `marketplace.config.api_errors` turns them into answers.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class SoukError(Exception):
    """Something went wrong that has a name.

    `message` is a template that `details` fill in; a detail that is missing stays visible as `{name}`, so that raising
    an error can never itself fail.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    message: str = "Something went wrong."

    def __init__(self, message: str | None = None, **details: Any) -> None:
        self.details = details
        self.message = message or _Template().format(type(self).message, **details)
        super().__init__(self.message)


class BadRequest(SoukError):
    message = "The request cannot be understood."
    code = "bad_request"
    status = 400


class Forbidden(SoukError):
    message = "You may not do this."
    code = "forbidden"
    status = 403


class NotFound(SoukError):
    message = "There is no such thing, or it is not yours."
    code = "not_found"
    status = 404


class StateConflict(SoukError):
    message = "{kind} {id} cannot go to {to}: it is {state}."
    code = "state_conflict"
    status = 409


class IdempotencyMismatch(SoukError):
    message = "This Idempotency-Key was used for a different request. Use a new key for a new request."
    code = "idempotency_mismatch"
    status = 409


class IdempotencyInProgress(SoukError):
    message = "The first request with this Idempotency-Key is still being answered. Try again in a moment."
    code = "idempotency_in_progress"
    status = 409


class IdempotencyKeyNotYours(Forbidden):
    message = (
        "This Idempotency-Key was used by a key or session that may do more than this one, and its answer is for that"
        " one only. Use a new key for a new request."
    )
    code = "idempotency_key_not_yours"


class IdempotencyKeyRefused(BadRequest):
    message = "This request needs an Idempotency-Key header: 1 to 200 printable characters, new for each new request."
    code = "idempotency_key_refused"


class OutboxConflict(SoukError):
    message = "The outbox holds another call under the business key {business_key}."
    code = "outbox_conflict"
    status = 409


class _Template(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), f"{{{key}}}")
