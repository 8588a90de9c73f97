"""How JSON requests are read: whatever is sent, the answer to nonsense is 400."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, TypeVar

import pydantic_core
from pydantic import BaseModel
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from marketplace.foundation.errors import BadRequest

M = TypeVar("M", bound=BaseModel)

ZERO_BYTE = b"\\u0000"  # the only way in which JSON can have one
_NO_ZERO_BYTES = "A text in the body holds a zero byte (\\u0000), which no text of the marketplace may. Leave it out."


class BoundedJSONParser(JSONParser):
    """JSON up to the depth that pydantic's parser allows (200); deeper is a bad request and not a broken server.

    Python's own parser recurses on the C stack, which a request of nested brackets can use up.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = stream.read()
        try:
            value = pydantic_core.from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from error
        _refuse_zero_bytes(raw, value)
        return value


def read_message(model: type[M], raw: bytes) -> M:
    """A body as `model`, for views that read bytes; raises BadRequest, and pydantic's ValidationError."""
    message = model.model_validate_json(raw)
    if ZERO_BYTE in raw:
        _refuse_zero_bytes(raw, pydantic_core.from_json(raw))
    return message


def _refuse_zero_bytes(raw: bytes, value: Any) -> None:
    # PostgreSQL's texts cannot hold one. Few bodies have the six characters at all, so few are walked.
    if ZERO_BYTE in raw and _has_zero_byte(value):
        raise BadRequest(_NO_ZERO_BYTES)


def _has_zero_byte(value: Any) -> bool:
    """Recursion ends with the parser's depth."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_zero_byte(each) for pair in value.items() for each in pair)
    return isinstance(value, list) and any(map(_has_zero_byte, value))
