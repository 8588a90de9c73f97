"""How amounts come in and go out: strings of whole micro-USD, or of whole base units of any asset."""

from __future__ import annotations

import re
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.errors import AmountInvalid, AmountTooLarge
from billing.fields import AMOUNT_DIGITS_MAX, AMOUNT_MAX

_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_UNITS: Final = re.compile(rf"[0-9]{{1,{AMOUNT_DIGITS_MAX}}}")


class UsdMicrosField(serializers.Field[int, Any, str, Any]):
    """A whole number of micro-USD as a string ("50000000" is $50.00); raises AmountInvalid for anything else."""

    def to_internal_value(self, data: Any) -> int:
        # Numbers are refused: a JSON reader may have rounded them before we see them.
        if not isinstance(data, str) or not _WHOLE.fullmatch(data):
            raise AmountInvalid(value=repr(data)[:60])
        return int(data)

    def to_representation(self, value: Any) -> str:
        return str(int(value))


@extend_schema_field(OpenApiTypes.STR)
class UnitsField(UsdMicrosField):
    """A whole number of base units as a string, up to 256 bits; raises AmountInvalid, AmountTooLarge."""

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, str) or not _UNITS.fullmatch(data):
            raise AmountInvalid(value=repr(data)[:60])
        if int(data) > AMOUNT_MAX:
            raise AmountTooLarge
        return int(data)
