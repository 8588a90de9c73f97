"""The marketplace from Python, one's own organisation: members, invitations, spend limits."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from jobs.client.sdk_account import Account
from jobs.wire.organisation import InvitationView, LimitView, MemberView, NewInvitationView

ROWS_MAX = 5_000


class Organisation(Account):
    """The part of `Souk` with which an owner says who belongs, and how much they may spend."""

    def members(self) -> list[MemberView]:
        """Who belongs to the organisation."""
        return list(islice(self.all_of("/members", MemberView), ROWS_MAX))

    def change_role(self, user_id: UUID, role: str) -> MemberView:
        """Give a member another role."""
        return MemberView.model_validate(self.transport.patch(f"/members/{user_id}", {"role": role}))

    def remove_member(self, user_id: UUID) -> None:
        """Take a member out of the organisation, with their keys."""
        self.transport.delete(f"/members/{user_id}")

    def invitations(self) -> list[InvitationView]:
        """Who is invited."""
        return list(islice(self.all_of("/invitations", InvitationView), ROWS_MAX))

    def invite(self, email: str, role: str) -> NewInvitationView:
        """An invitation with its token, which is shown once."""
        return NewInvitationView.model_validate(self.transport.post("/invitations", {"email": email, "role": role}))

    def withdraw_invitation(self, invitation_id: UUID) -> None:
        """From now on nobody can accept it."""
        self.transport.delete(f"/invitations/{invitation_id}")

    def accept_invitation(self, token: str) -> str:
        """Join the organisation that invited this user; its name."""
        found = self.transport.post("/invitations/accept", {"token": token})
        name: str = found["organisation"]["name"]
        return name

    def spend_limits(self) -> list[LimitView]:
        """How much may be spent, and how much was."""
        return [LimitView.model_validate(row) for row in self.transport.get("/spend-limits")]

    def set_spend_limit(self, usd_micros: int, *, period: str, member_id: UUID | None = None) -> LimitView:
        """Set or replace a limit; it counts from the next job on."""
        body: dict[str, str] = {"amount_usd_micros": str(usd_micros), "period": period}
        if member_id is not None:
            body["member_id"] = str(member_id)
        return LimitView.model_validate(self.transport.post("/spend-limits", body))

    def remove_spend_limit(self, limit_id: UUID) -> None:
        """No limit of this kind any more."""
        self.transport.delete(f"/spend-limits/{limit_id}")
