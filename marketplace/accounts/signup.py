"""Who may make an account, and how one is made."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from marketplace.accounts import organisations
from marketplace.accounts.errors import EmailTaken, InvitationRefused, SignupClosed
from marketplace.accounts.models import Membership, SignupPolicy, SitePolicy, User
from marketplace.accounts.passwords import check_strength


def sign_up(
    *, email: str, password: str, name: str = "", organisation_name: str = "", invitation: str = ""
) -> Membership:
    """A new user and their membership: of the inviting organisation, else of a new one that they own.

    The operator's switch decides: open to all, by invitation, or closed to all.
    """
    policy = SitePolicy.current().signup
    if policy == SignupPolicy.CLOSED:
        raise SignupClosed
    if policy == SignupPolicy.INVITATION and not invitation:
        raise InvitationRefused
    email = email.strip().lower()
    check_strength(password, User(email=email, name=name))
    try:
        with transaction.atomic():
            invited = organisations.use_invitation(invitation, email=email) if invitation else None
            user = User.objects.create_user(email, password, name=name)
            if invited is not None and invited.organisation is not None:
                return Membership.objects.create(organisation=invited.organisation, user=user, role=invited.role)
            return organisations.create(user, organisation_name or name or email.partition("@")[0])
    except IntegrityError as error:
        raise EmailTaken from error
