"""How JSON requests are read: whatever is sent, the answer to nonsense is 400."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import pydantic_core
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class BoundedJSONParser(JSONParser):
    """JSON up to the depth that pydantic's parser allows (200); deeper is a bad request and not a broken server.

    Python's own parser recurses on the C stack, which a request of nested brackets can use up.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            return pydantic_core.from_json(stream.read(), allow_inf_nan=False)
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from error
