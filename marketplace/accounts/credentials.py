"""What a user made that lets somebody in, and how all of it is revoked at once.

lock_unchanged   before one is made: the user's row is locked, and the password is still the one that let them in
lock_member      before one is made of an organisation: they are a member, and stay one until it is made
revoke_all       API keys, open invitations, and what other apps registered by `when_revoked`: everywhere, when a
                 password is reset, or in the organisation that the user leaves
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from marketplace.accounts.errors import NotAMember, PasswordChanged
from marketplace.accounts.models import ApiKey, Invitation, Membership, User
from marketplace.foundation import clock

Revoke = Callable[[UUID, UUID | None], None]  # of a user, in one organisation or in all

_revokers: Final[list[Revoke]] = []


def when_revoked(revoke: Revoke) -> None:
    """Register what an app above this one revokes of a user, in the transaction that sets their password or ends a
    membership.
    """
    if revoke not in _revokers:
        _revokers.append(revoke)


def lock_unchanged(user: User) -> None:
    """Return, with the user's row locked, if their password is the one that `user` was read with.

    Raises PasswordChanged: a request that was let in before a reset makes nothing that stays after it. Must be called
    within the transaction that makes the token; a reset waits for it, and then revokes what it made.
    """
    now = User.objects.select_for_update(no_key=True).filter(pk=user.pk, is_active=True).first()
    if now is None or now.password != user.password:
        raise PasswordChanged


def lock_member(user_id: UUID, organisation_id: UUID) -> None:
    """Raise NotAMember unless the user is one, until the caller's transaction ends; who removes them waits for it."""
    rows = Membership.objects.select_for_update(no_key=True)
    if rows.filter(user_id=user_id, organisation_id=organisation_id).first() is None:
        raise NotAMember


def revoke_all(user_id: UUID, organisation_id: UUID | None = None) -> None:
    """Nothing that the user made before lets anybody in any more, in one organisation or in all.

    For all the caller has locked the user's row, for one it has deleted the membership.
    """
    keys, invitations = ApiKey.objects.filter(user_id=user_id), Invitation.objects.filter(invited_by_id=user_id)
    if organisation_id is not None:
        keys, invitations = keys.filter(organisation=organisation_id), invitations.filter(organisation=organisation_id)
    keys.filter(revoked_at=None).update(revoked_at=clock.now())
    invitations.filter(accepted_at=None).delete()
    for revoke in _revokers:
        revoke(user_id, organisation_id)


def revoke_with_membership(instance: Membership, **_: object) -> None:
    """A membership was deleted, by whichever way: `organisations.remove`, the admin, or a shell."""
    revoke_all(instance.user_id, instance.organisation_id)


def revoke_with_user(instance: User, **_: object) -> None:
    """A user is about to be deleted."""
    revoke_all(instance.pk)
