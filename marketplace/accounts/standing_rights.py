"""What a member may still do, where something they ordered is done while they are not there."""

from __future__ import annotations

from uuid import UUID

from marketplace.accounts import api_keys, signup
from marketplace.accounts.errors import OrderOutdated
from marketplace.accounts.models import ApiKey, Membership, User
from marketplace.accounts.scopes import ROLE_SCOPES, Scope


def require_right(user: User | None, organisation_id: UUID, scope: Scope, *, key_id: UUID | None) -> None:
    """Return where this member may do now what they ordered then; raises OrderOutdated, which says what has changed.

    `key_id`: the API key that they ordered it with; None: in person. Call it in the transaction that does it: until its
    end nobody takes the membership or the key away.
    """
    if user is None or not User.objects.filter(pk=user.pk, is_active=True).exists():
        raise OrderOutdated(why="whoever ordered it has no account any more")
    members = Membership.objects.select_for_update(no_key=True, of=("self",))
    membership = members.filter(user=user, organisation_id=organisation_id).first()
    if membership is None:
        raise OrderOutdated(why="whoever ordered it is no member of the organisation any more")
    if scope not in ROLE_SCOPES[membership.role]:
        raise OrderOutdated(why=f"whoever ordered it has another role now, {membership.role}, without {scope}")
    if signup.is_unverified(user):
        raise OrderOutdated(why="whoever ordered it has not verified their address")
    if key_id is None:
        return
    keys = ApiKey.objects.select_for_update(no_key=True, of=("self",))
    key = keys.filter(api_keys.live(), pk=key_id, user=user, organisation_id=organisation_id).first()
    if key is None or scope not in key.scopes:
        raise OrderOutdated(why="the API key that it was ordered with was revoked, or has expired")
