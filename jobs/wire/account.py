"""Who somebody is here, and what they have."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from jobs.wire.base import Units, Wire


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


class TokenBalance(Wire):
    """The same in one token."""

    asset: str
    scale: int
    available_units: Units
    held_units: Units
    provider_pending_units: Units
    provider_available_units: Units


class BalanceView(Wire):
    """GET /api/v1/balance"""

    available_usd_micros: int
    held_usd_micros: int
    provider_pending_usd_micros: int
    provider_available_usd_micros: int
    tokens: list[TokenBalance] = []
