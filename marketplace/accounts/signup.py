"""Who may make an account, and how one is made: by the link that its address is mailed.

sign_up   at once, where addresses are not verified (SOUK_EMAIL_VERIFICATION=off); it tells which have accounts
request   otherwise: the same answer in the same time for every address; a mail says what is next
pend      by the worker that sends the mail, where the address has no account: the text of its link
confirm   whoever opens the link and has the password reads the address's mail: the account is made
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.contrib.auth.hashers import check_password, make_password
from django.db import IntegrityError, transaction

from marketplace.accounts import organisations, signin_limits
from marketplace.accounts.errors import EmailTaken, InvitationRefused, SigninRefused, SignupClosed, SignupLinkRefused
from marketplace.accounts.models import Invitation, Membership, PendingSignup, SignupPolicy, SitePolicy, User
from marketplace.accounts.passwords import check_strength
from marketplace.foundation import clock, outbox, signing
from marketplace.foundation.ids import new_id
from marketplace.foundation.tokens import hash_token

SIGNUP_KIND: Final = "portal.signup"  # of the mail; marketplace/portal/signin/signup_mail.py sends it
LINK_BYTES: Final = 32
LINK_HOURS: Final = 24
REQUIRED, OFF = "required", "off"


def is_verified_by_mail() -> bool:
    """Whether an account is made by the mailed link, and money needs a verified address."""
    return str(settings.SOUK_EMAIL_VERIFICATION) == REQUIRED


def is_unverified(user: User) -> bool:
    """Whether the user has to verify their address before anything is done in an organisation's name."""
    return is_verified_by_mail() and user.verified_at is None


def sign_up(
    *, email: str, password: str, name: str = "", organisation_name: str = "", invitation: str = ""
) -> Membership:
    """A new user and their membership: of the inviting organisation, else of a new one that they own.

    The operator's switch decides: open to all, by invitation, or closed to all.
    """
    email = email.strip().lower()
    _require_policy(invitation)
    check_strength(password, User(email=email, name=name))
    user = User(email=email, name=name, password=make_password(password))
    return _make(user, organisation_name, hash_token(invitation) if invitation else "")


def request(
    *, address: str, email: str, password: str, name: str = "", organisation_name: str = "", invitation: str = ""
) -> None:
    """Have a mail sent to the address, if not too many were: its link makes the account, where there is none yet.

    Raises SignupClosed, InvitationRefused, WeakPassword, and SigninLocked for a network address of too many requests.
    """
    email = email.strip().lower()
    _require_policy(invitation)
    invitation_hash = organisations.require_invitation(invitation, email=email) if invitation else ""
    check_strength(password, User(email=email, name=name))
    wanted = {
        "email": email,
        "password": make_password(password),
        "name": name,
        "organisation_name": organisation_name,
        "invitation_hash": invitation_hash,
    }
    if signin_limits.take_mail(email, address):
        payload = {"wanted_sealed": signing.encrypt_secret(json.dumps(wanted))}
        outbox.enqueue(SIGNUP_KIND, f"signup:{new_id()}", payload)


def read_request(payload: Mapping[str, str]) -> dict[str, str]:
    """What `request` wrote down."""
    wanted: dict[str, str] = json.loads(signing.decrypt_secret(payload["wanted_sealed"]))
    return wanted


def pend(wanted: Mapping[str, str]) -> str | None:
    """The text that makes this account once, within LINK_HOURS; None where the address has an account."""
    if User.objects.filter(email=wanted["email"]).exists():
        return None
    text = secrets.token_urlsafe(LINK_BYTES)
    expires_at = clock.now() + timedelta(hours=LINK_HOURS)
    PendingSignup.objects.create(**wanted, token_hash=hash_token(text), expires_at=expires_at)
    return text


def find_pending(text: str) -> PendingSignup:
    """The account that this link makes; looking uses nothing up. Raises SignupLinkRefused."""
    found = PendingSignup.objects.filter(token_hash=hash_token(text), expires_at__gt=clock.now()).first()
    if found is None:
        raise SignupLinkRefused
    return found


def confirm(text: str, password: str) -> Membership:
    """Make the account of a mailed link, once, for who has its password too.

    A stranger may have signed up with somebody's address: who opens that link does not know the password, and must not
    get an account that the stranger has the password of. The caller has counted the attempt by `signin_limits.take`.
    Raises SignupLinkRefused, SigninRefused, SignupClosed, InvitationRefused, EmailTaken.
    """
    with transaction.atomic():
        wanted = PendingSignup.objects.select_for_update().filter(pk=find_pending(text).pk).first()
        if wanted is None:
            raise SignupLinkRefused
        if not check_password(password, wanted.password):
            raise SigninRefused
        _require_policy(wanted.invitation_hash)
        user = User(email=wanted.email, name=wanted.name, password=wanted.password, verified_at=clock.now())
        membership = _make(user, wanted.organisation_name, wanted.invitation_hash)
        PendingSignup.objects.filter(email=wanted.email).delete()
        return membership


def forget_old() -> int:
    """Delete what nobody confirmed in time; returns the number of rows."""
    deleted, _ = PendingSignup.objects.filter(expires_at__lt=clock.now()).delete()
    return deleted


def _require_policy(invitation: str) -> None:
    policy = SitePolicy.current().signup
    if policy == SignupPolicy.CLOSED:
        raise SignupClosed
    if policy == SignupPolicy.INVITATION and not invitation:
        raise InvitationRefused


def _make(user: User, organisation_name: str, invitation_hash: str) -> Membership:
    try:
        with transaction.atomic():
            invited: Invitation | None = None
            if invitation_hash:
                invited = organisations.use_invitation_of(invitation_hash, email=user.email)
            user.save(force_insert=True)
            if invited is not None and invited.organisation is not None:
                return Membership.objects.create(organisation=invited.organisation, user=user, role=invited.role)
            return organisations.create(user, organisation_name or user.name or user.email.partition("@")[0])
    except IntegrityError as error:
        raise EmailTaken from error
