"""The base of everything on the wire."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Base of everything on this wire: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
