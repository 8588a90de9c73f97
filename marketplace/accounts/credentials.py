"""What a user made that lets somebody in, and how all of it is revoked at once, when a password is reset.

lock_unchanged   before one is made: the user's row is locked, and the password is still the one that let them in
revoke_all       API keys, open invitations, and what other apps registered by `when_revoked`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from marketplace.accounts.errors import PasswordChanged
from marketplace.accounts.models import ApiKey, Invitation, User
from marketplace.foundation import clock

_revokers: Final[list[Callable[[User], None]]] = []


def when_revoked(revoke: Callable[[User], None]) -> None:
    """Register what an app above this one revokes of a user, in the transaction that sets their password anew."""
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


def revoke_all(user: User) -> None:
    """Nothing that the user made before lets anybody in any more. The caller has locked the user's row."""
    ApiKey.objects.filter(user=user, revoked_at=None).update(revoked_at=clock.now())
    Invitation.objects.filter(invited_by=user, accepted_at=None).delete()
    for revoke in _revokers:
        revoke(user)
