"""How amounts come in and go out: strings of whole micro-USD."""

from __future__ import annotations

import re
from typing import Any, Final

from rest_framework import serializers

from billing.errors import AmountInvalid

DIGITS_MAX: Final = 18
_WHOLE: Final = re.compile(r"[0-9]{1,18}")


class UsdMicrosField(serializers.Field[int, Any, str, Any]):
    """A whole number of micro-USD as a string ("50000000" is $50.00); raises AmountInvalid for anything else."""

    def to_internal_value(self, data: Any) -> int:
        # Numbers are refused: a JSON reader may have rounded them before we see them.
        if not isinstance(data, str) or not _WHOLE.fullmatch(data):
            raise AmountInvalid(value=repr(data)[:60])
        return int(data)

    def to_representation(self, value: Any) -> str:
        return str(int(value))
