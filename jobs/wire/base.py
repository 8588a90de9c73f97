"""What all public types have in common, and the form of an error."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, Strict

# Base units of an asset: a text in JSON, since a token's amounts have up to 78 digits.
Units = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]
UNITS_DIGITS_MAX: Final = 78  # of 256 bits


def _from_digits(value: Any) -> Any:
    is_digits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= UNITS_DIGITS_MAX
    return int(value) if is_digits else value


# The same in a request: a text as answers show it, or a whole number.
UnitsGiven = Annotated[int, Strict(), BeforeValidator(_from_digits), Field(gt=0, lt=2**256)]


class Wire(BaseModel):
    """Base of the public types. Servers may add fields; a client ignores those that it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorView(Wire):
    """What every error looks like."""

    code: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)
