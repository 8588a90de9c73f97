"""API keys: `souk_<prefix>_<secret>`. The secret is shown once; the database holds its SHA-256.

A plain hash is enough, because the secret is 256 random bits and cannot be guessed, hashed or not.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from marketplace.accounts import credentials
from marketplace.accounts.errors import NotAMember, ScopeNotYours, TooManyKeys
from marketplace.accounts.models import ApiKey, Membership, Organisation, User
from marketplace.accounts.scopes import ROLE_SCOPES
from marketplace.foundation import clock
from marketplace.foundation.errors import NotFound
from marketplace.foundation.tokens import hash_token

PREFIX_BYTES: Final = 6
SECRET_BYTES: Final = 32
LIVE_KEYS_MAX: Final = 200  # of one user in one organisation
NAME_CHARACTERS_MAX: Final = 120
LAST_USED_SECONDS: Final = 60  # how exactly `last_used_at` is kept


def issue(
    *, user: User, organisation: Organisation, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """A new key with no scope that the user's role may not hold, and its text, which is kept nowhere.

    Raises PasswordChanged where `user` was read before their password was set anew.
    """
    with transaction.atomic():
        credentials.lock_unchanged(user)
        return _issue(user=user, organisation=organisation, name=name, scopes=scopes, expires_at=expires_at)


def _issue(
    *, user: User, organisation: Organisation, name: str, scopes: Collection[str], expires_at: datetime | None
) -> tuple[ApiKey, str]:
    # Locked: who removes the member waits, and then revokes this key with the others.
    memberships = Membership.objects.select_for_update(no_key=True)
    membership = memberships.filter(user=user, organisation=organisation).first()
    if membership is None:
        raise NotAMember
    if excess := sorted(set(scopes) - ROLE_SCOPES[membership.role]):
        raise ScopeNotYours(scopes=", ".join(excess))
    if (count := ApiKey.objects.filter(live(), user=user, organisation=organisation).count()) >= LIVE_KEYS_MAX:
        raise TooManyKeys(keys=count)
    prefix, secret = secrets.token_hex(PREFIX_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    key = ApiKey.objects.create(
        organisation=organisation,
        user=user,
        name=name[:NAME_CHARACTERS_MAX],
        prefix=prefix,
        key_hash=hash_token(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    return key, f"souk_{prefix}_{secret}"


def verify(plaintext: str) -> ApiKey | None:
    """The live key of this text, with its user and organisation; None for any other text, in much the same time."""
    brand, prefix, secret = (*plaintext.split("_", 2), "", "")[:3]
    rows = ApiKey.objects.select_related("user", "organisation")
    key = rows.filter(live(), prefix=prefix, user__is_active=True).first() if brand == "souk" else None
    is_right = hmac.compare_digest(hash_token(secret), key.key_hash if key else "0" * 64)
    if key is None or not is_right:
        return None
    _note_use(key)
    return key


def revoke(key: ApiKey) -> ApiKey:
    """From now on the key opens nothing; when it was revoked before, that moment stays."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=clock.now())
    key.refresh_from_db(fields=["revoked_at"])
    return key


def rotate(key: ApiKey, *, until: datetime | None = None) -> tuple[ApiKey, str]:
    """A new key in place of this one, which is revoked in the same moment; it ends at `until` at the latest."""
    ends = [each for each in (key.expires_at, until) if each is not None]
    with transaction.atomic():
        # Before the key's row, as a reset and the end of a membership do.
        credentials.lock_unchanged(key.user)
        credentials.lock_member(key.user_id, key.organisation_id)
        if ApiKey.objects.filter(live(), pk=key.pk).update(revoked_at=clock.now()) != 1:
            raise NotFound
        return issue(
            user=key.user,
            organisation=key.organisation,
            name=key.name,
            scopes=key.scopes,
            expires_at=min(ends, default=None),
        )


def live() -> Q:
    """Keys that are neither revoked nor expired."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=clock.now()))


def _note_use(key: ApiKey) -> None:
    now = clock.now()
    before = now - timedelta(seconds=LAST_USED_SECONDS)
    if key.last_used_at is None or key.last_used_at < before:
        is_due = Q(last_used_at=None) | Q(last_used_at__lt=before)
        ApiKey.objects.filter(is_due, pk=key.pk).update(last_used_at=now)
        key.last_used_at = now
