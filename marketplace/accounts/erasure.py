"""Erase a person: everything that identifies them is deleted, everything that the books need stays.

The user's row stays under a random name that leads nowhere, so that jobs and events keep an owner; no row of money is
touched: ledger, settlements and invoices belong to organisations, and name people by id only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from marketplace.accounts import credentials
from marketplace.accounts.errors import LastOwner
from marketplace.accounts.models import (
    ApiKey,
    Invitation,
    Membership,
    Organisation,
    PendingSignup,
    Role,
    SecondFactor,
    SigninAddress,
    User,
)
from marketplace.foundation.ids import new_id

DOMAIN: Final = "erased.invalid"  # RFC 2606: no mail can ever reach it

_forgetters: list[Callable[[User], None]] = []


def when_erased(forget: Callable[[User], None]) -> None:
    """Register what an app above this one does in every erasure: it deletes its rows of a user, in the transaction.

    The user's own row stays, so no row is deleted by a cascade.
    """
    if forget not in _forgetters:
        _forgetters.append(forget)


def erase(user_id: UUID) -> User:
    """Pseudonymise the user for ever; a repeat changes nothing.

    Raises LastOwner where an organisation with other members would be left without one: hand it over first. An
    organisation without other members loses its name, and keeps its money and its duties.
    """
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user_id)
        if user.email.endswith(f"@{DOMAIN}"):
            return user
        # 1. Their organisations, each under its lock.
        for membership in Membership.objects.filter(user=user).order_by("organisation_id"):
            _leave(membership)
        # 2. Keys and invitations; a session ends with the password that it was made with.
        credentials.revoke_all(user.pk)
        ApiKey.objects.filter(user=user).update(name="")
        Invitation.objects.filter(email=user.email).delete()
        PendingSignup.objects.filter(email=user.email).delete()
        SigninAddress.objects.filter(user=user).delete()
        SecondFactor.objects.filter(user=user).delete()
        # 3. What other apps store of them only.
        for forget in _forgetters:
            forget(user)
        # 4. What identifies them.
        before, pseudonym = user.email, f"{new_id().hex}@{DOMAIN}"
        with connection.cursor() as cursor:
            # No update: the servers' role may change no event, and the digests follow.
            cursor.execute("SELECT foundation_forget_actor(%s, %s)", [before, pseudonym])
        user.email, user.name = pseudonym, ""
        user.second_factor_at = None
        user.is_active = user.is_staff = user.is_superuser = False
        user.set_unusable_password()
        user.save()
        user.groups.clear()
        user.user_permissions.clear()
        return user


def _leave(membership: Membership) -> None:
    organisation = Organisation.objects.select_for_update(no_key=True).get(pk=membership.organisation_id)
    others = organisation.memberships.exclude(pk=membership.pk)
    if not others.exists():
        organisation.name = "erased"
        organisation.save(update_fields=["name"])
    elif membership.role == Role.OWNER and not others.filter(role=Role.OWNER).exists():
        raise LastOwner
    membership.delete()
