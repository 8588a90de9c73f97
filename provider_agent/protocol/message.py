"""The base of everything on the wire."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Base of everything on this wire: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Account(Message):
    """What an agent reports of itself with a beat: fields that only a newer agent has are ignored.

    A server that was rolled back to an older version must still accept newer agents, if only to order their rollback
    too. A reader still refuses wrong values of the fields that it has.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
