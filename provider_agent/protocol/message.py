"""The base of everything on the wire."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Base of everything on this wire: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Account(Message):
    """What an agent says of itself with a beat: fields that only a newer agent knows are passed over.

    A server that was taken back to an older version must go on hearing agents that are ahead of it, if only to tell
    them to go back too. Whoever reads one of these still refuses wrong values of the fields that it knows.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
