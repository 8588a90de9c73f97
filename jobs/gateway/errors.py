"""What goes wrong at the gateway, in the form that OpenAI's clients know: status, type, code, message, param."""

from __future__ import annotations

import json
from typing import Any


class ApiError(Exception):
    """An answer that is an error. `retry_after`: seconds, sent as a header; `code` is stable, `message` for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.type, self.param, self.retry_after = type, param, retry_after

    def body(self) -> bytes:
        """As JSON."""
        return json.dumps(self.as_dict()).encode()

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's form; also what a stream that has begun ends with (`data: {...}`)."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}
