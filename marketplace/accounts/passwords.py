"""Changing a password with the old one, and setting a new one by a link that only the account's mail has.

link_token        made when the mail is sent, kept nowhere: it is signed over the password's hash and the last sign-in
find_for_reset    whose link this is
reset             sets it by the link, and revokes all that lets somebody in: whoever had the old one made some of it
tell_of_operator  by mail, of a password that was set in the admin
set_password      ends sessions and locks (not those of codes), revokes tokens where asked to, tells the user by mail
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import ValidationError
from django.db import transaction

from marketplace.accounts import credentials, mailing, signin_limits
from marketplace.accounts.errors import PasswordsDiffer, ResetRefused, WeakPassword
from marketplace.accounts.models import User
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id

PASSWORD_CHARACTERS_MAX: Final = 256  # hashing takes time that grows with them


@dataclass(frozen=True)
class NewPassword:
    """What a form asks for: the password, typed twice, and whether the user's tokens go with the old one."""

    password: str
    again: str
    revoke_tokens: bool = True


def check_strength(password: str, user: User) -> None:
    """Return for a password that is hard to guess, of this user too; raises WeakPassword."""
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise WeakPassword(problems=f"It has more than {PASSWORD_CHARACTERS_MAX} characters.")
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise WeakPassword(problems=" ".join(error.messages)) from error


def link_token(email: str) -> tuple[User, str] | None:
    """The user of an address and what lets them set a new password once; None where there is none to let in."""
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None or not user.has_usable_password():
        return None
    return user, default_token_generator.make_token(user)


def find_for_reset(user_id: str, token: str) -> User:
    """The user whose mailed link this is; raises ResetRefused. Looking uses nothing up."""
    try:
        user = User.objects.filter(pk=UUID(user_id), is_active=True).first()
    except ValueError:
        user = None
    if user is None or not default_token_generator.check_token(user, token):
        raise ResetRefused
    return user


def reset(user_id: str, token: str, new: NewPassword) -> User:
    """Set the password of the user whose mailed link this is; of two at the same moment one is refused."""
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=find_for_reset(user_id, token).pk)
        user = set_password(find_for_reset(user_id, token), replace(new, revoke_tokens=True))
        User.objects.filter(pk=user.pk, verified_at=None).update(verified_at=clock.now())  # they read its mail
        return user


def set_password(user: User, new: NewPassword) -> User:
    """The caller has made sure that it is the user. Raises PasswordsDiffer, WeakPassword, PasswordChanged."""
    if new.password != new.again:
        raise PasswordsDiffer
    check_strength(new.password, user)
    with transaction.atomic():
        credentials.lock_unchanged(user)  # else a thief's change that a reset overtook would undo it
        user.set_password(new.password)
        user.save(update_fields=["password"])
        if new.revoke_tokens:
            credentials.revoke_all(user.pk)
        signin_limits.unlock(user.email, codes=False)
        text = _text("were revoked" if new.revoke_tokens else "stayed as they were")
        mailing.notify([user.pk], f"password-changed:{new_id()}", subject="Your password was changed", text=text)
    return user


def tell_of_operator(user: User) -> None:
    """An operator set another password in the admin: else a stolen session of theirs would do so unseen."""
    text = (
        "An operator of the marketplace set another password for your account, and its sessions ended. Your API keys,"
        " endpoint keys and open invitations stayed as they were.\n\n"
        'If you did not ask for it, set a new one ("Password forgotten?" on the page for signing in), and tell them.'
    )
    subject = "An operator set your password"
    mailing.notify([user.pk], f"password-set:{new_id()}", subject=subject, text=text)


def _text(keys: str) -> str:
    return (
        "The password of your account was changed, and all other sessions ended. Your API keys, endpoint keys and open"
        f" invitations {keys}.\n\n"
        'If it was not you, somebody reads your mail or knew your password: set a new one ("Password forgotten?" on the'
        " page for signing in), which revokes them all, and change the password of your mailbox."
    )
