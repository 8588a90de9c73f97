"""Who belongs to an organisation, and as what. It always keeps one owner."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from marketplace.accounts import credentials
from marketplace.accounts.errors import AlreadyMember, InvitationRefused, LastOwner, NotAMember, TooManyOrganisations
from marketplace.accounts.models import Invitation, Membership, Organisation, Role, User
from marketplace.foundation import clock
from marketplace.foundation.tokens import hash_token

INVITATION_DAYS: Final = 7
INVITATION_BYTES: Final = 32
OWNED_MAX: Final = 20  # by one user: each has storage that costs nothing, and turns in the queue


def create(owner: User, name: str) -> Membership:
    """A new organisation; returns its first owner's membership. Raises TooManyOrganisations."""
    with transaction.atomic():
        _refuse_many_owned(owner.pk)
        organisation = Organisation.objects.create(name=name.strip()[:120])
        return Membership.objects.create(organisation=organisation, user=owner, role=Role.OWNER)


def invite(
    organisation: Organisation | None, *, email: str, role: str = Role.MEMBER, invited_by: User | None = None
) -> tuple[Invitation, str]:
    """An invitation for one address, and its text, which is kept nowhere; without organisation: to the marketplace."""
    email = email.strip().lower()
    if organisation is not None and organisation.memberships.filter(user__email=email).exists():
        raise AlreadyMember
    plaintext = "souki_" + secrets.token_urlsafe(INVITATION_BYTES)
    with transaction.atomic():
        if invited_by is not None:
            credentials.lock_unchanged(invited_by)
            if organisation is not None and not invited_by.is_staff:  # an operator need not be a member
                credentials.lock_member(invited_by.pk, organisation.pk)
        invitation = Invitation.objects.create(
            organisation=organisation,
            email=email,
            role=Role(role),
            token_hash=hash_token(plaintext),
            invited_by=invited_by,
            expires_at=clock.now() + timedelta(days=INVITATION_DAYS),
        )
    return invitation, plaintext


def withdraw(invitation: Invitation) -> None:
    """Delete an invitation, so that it cannot be accepted any more; one that was accepted stays as it is."""
    Invitation.objects.filter(pk=invitation.pk, accepted_at=None).delete()


def use_invitation(plaintext: str, *, email: str) -> Invitation:
    """Take an invitation, once: of two that try at the same time one gets it. Raises InvitationRefused."""
    return use_invitation_of(hash_token(plaintext), email=email)


def use_invitation_of(token_hash: str, *, email: str) -> Invitation:
    """The same by the hash of its text."""
    if _unused(token_hash, email).update(accepted_at=clock.now()) != 1:
        raise InvitationRefused
    return Invitation.objects.select_related("organisation").get(token_hash=token_hash)


def require_invitation(plaintext: str, *, email: str) -> str:
    """The hash of an invitation that could be taken now, which stays as it is. Raises InvitationRefused."""
    if not _unused(hash_token(plaintext), email).exists():
        raise InvitationRefused
    return hash_token(plaintext)


def accept(user: User, plaintext: str) -> Membership:
    """The user joins the inviting organisation. Raises InvitationRefused, AlreadyMember, TooManyOrganisations."""
    try:
        with transaction.atomic():
            invitation = use_invitation(plaintext, email=user.email)
            if invitation.organisation is None:  # to the marketplace, where this user is already
                raise InvitationRefused
            if invitation.role == Role.OWNER:
                _refuse_many_owned(user.pk)
            return Membership.objects.create(organisation=invitation.organisation, user=user, role=invitation.role)
    except IntegrityError as error:
        raise AlreadyMember from error


def change_role(organisation: Organisation, user_id: UUID, role: str) -> Membership:
    """The member's role from now on; the scopes of their keys shrink with it, and only an owner's invitations stay."""
    with transaction.atomic():
        membership = lock_member(organisation, user_id)
        if membership.role == Role.OWNER and role != Role.OWNER:
            _refuse_last_owner(organisation)
        if role != Role.OWNER:
            _withdraw_all_of(organisation, user_id)
        elif membership.role != Role.OWNER:
            _refuse_many_owned(user_id)
        membership.role = Role(role)
        membership.save(update_fields=["role"])
    return membership


def remove(organisation: Organisation, user_id: UUID) -> None:
    """The user leaves; what they made in this organisation that lets somebody in is revoked."""
    with transaction.atomic():
        membership = lock_member(organisation, user_id)
        if membership.role == Role.OWNER:
            _refuse_last_owner(organisation)
        membership.delete()  # `credentials.revoke_with_membership` follows


def lock_member(organisation: Organisation, user_id: UUID) -> Membership:
    """The member; the organisation's row is locked first, so that two owners cannot leave at the same time.

    Raises NotAMember.
    """
    Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
    membership = Membership.objects.filter(organisation=organisation, user_id=user_id).first()
    if membership is None:
        raise NotAMember
    return membership


def _unused(token_hash: str, email: str) -> QuerySet[Invitation]:
    return Invitation.objects.filter(
        token_hash=token_hash, email=email.strip().lower(), accepted_at=None, expires_at__gt=clock.now()
    )


def _refuse_last_owner(organisation: Organisation) -> None:
    if Membership.objects.filter(organisation=organisation, role=Role.OWNER).count() <= 1:
        raise LastOwner


def _withdraw_all_of(organisation: Organisation, user_id: UUID) -> None:
    """Who is no owner any more comes back by no invitation of their own, under another address."""
    Invitation.objects.filter(organisation=organisation, invited_by_id=user_id, accepted_at=None).delete()


def _refuse_many_owned(user_id: UUID) -> None:
    """In the transaction that makes the user an owner; two at once take turns."""
    User.objects.select_for_update(no_key=True).get(pk=user_id)
    if Membership.objects.filter(user_id=user_id, role=Role.OWNER).count() >= OWNED_MAX:
        raise TooManyOrganisations(organisations=OWNED_MAX)
