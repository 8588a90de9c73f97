"""What this engine refuses, in the form that OpenAI's clients expect.

BadRequest   400  the request has a mistake, or needs what this engine cannot do
`-- TooBusy  429  as much waits as may wait
"""

from __future__ import annotations

from typing import Any


class BadRequest(Exception):
    """The request has a mistake."""

    status = 400
    kind = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.code = param, code

    def body(self) -> dict[str, Any]:
        """OpenAI's form."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


class TooBusy(BadRequest):
    """As much waits as may wait."""

    status = 429
    kind = "rate_limit_error"
