"""Who somebody is here."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from jobs.wire.base import Wire


class OrganisationView(Wire):
    """In whose name a key acts."""

    id: UUID
    name: str


class MeView(Wire):
    """GET /api/v1/me"""

    organisation: OrganisationView


class SignIn(Wire):
    """Answer of POST /api/v1/login"""

    key: str = Field(repr=False)
    organisation: OrganisationView
    scopes: list[str]
