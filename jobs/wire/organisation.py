"""Who belongs to an organisation, who is invited, and how much they may spend."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from jobs.wire.base import Units, Wire


class UserView(Wire):
    """A person with an account."""

    id: UUID
    email: str
    name: str = ""


class MemberView(Wire):
    """GET /api/v1/members"""

    user: UserView
    role: str
    created_at: datetime


class InvitationView(Wire):
    """GET /api/v1/invitations"""

    id: UUID
    email: str
    role: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None


class NewInvitationView(InvitationView):
    """Answer of POST /api/v1/invitations; its token is shown once"""

    token: str = Field(repr=False)


class LimitView(Wire):
    """GET /api/v1/spend-limits"""

    id: UUID
    member_id: UUID | None
    period: str
    amount_usd_micros: Units
    used_usd_micros: Units
    left_usd_micros: Units
    reached_percents: list[int]
    resets_at: datetime | None
