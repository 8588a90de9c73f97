"""What all public types have in common, and the form of an error."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

# Base units of an asset: a text in JSON, since a token's amounts have up to 78 digits.
Units = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]


class Wire(BaseModel):
    """Base of the public types. Servers may add fields; a client ignores those that it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorView(Wire):
    """What every error looks like."""

    code: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)
