"""The second factor: codes of an authenticator app, each of which opens once, and recovery codes for who lost it.

    enable        by the user, with a code that shows that the app has the secret; returns the recovery codes, once
    check         a code, after the right password; the caller has counted it by `signin_limits.take_code`
    check_sign_in the same for a client that signs in with password and code at once
    disable       by the user with a code, or by an operator on the server

Operators need one (SOUK_STAFF_SECOND_FACTOR); everybody may have one, and is then asked for it. A password that is set
anew by mail changes nothing about it.
"""

from __future__ import annotations

import secrets
from typing import Final

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import transaction

from marketplace.accounts import credentials, mailing
from marketplace.accounts.errors import SecondFactorMissing, SecondFactorRefused, SecondFactorRequired
from marketplace.accounts.models import SecondFactor, User
from marketplace.foundation import clock, signing, totp
from marketplace.foundation.ids import new_id
from marketplace.foundation.tokens import hash_token

RECOVERY_CODES: Final = 10
RECOVERY_BYTES: Final = 10  # 80 random bits a code: their plain hashes cannot be searched
CODE_CHARACTERS_MAX: Final = 40
REQUIRED, OPTIONAL = "required", "optional"  # of operators


def is_needed(user: User) -> bool:
    """Whether the password alone lets this user do nothing: they have a factor, or must have one."""
    return user.second_factor_at is not None or is_due(user)


def is_due(user: User) -> bool:
    """Whether the user has to set one up before anything else."""
    required = settings.SOUK_STAFF_SECOND_FACTOR == REQUIRED
    return required and (user.is_staff or user.is_superuser) and user.second_factor_at is None


def enable(user: User, secret: str, code: str) -> list[str]:
    """The user has the factor from now on; returns their recovery codes, of which only hashes are stored.

    Raises SecondFactorRefused for a code that is not the secret's, and where they have a factor: no other takes its
    place before `disable`. Raises PasswordChanged where the password was set anew since `user` was read.
    """
    step = totp.find_step(secret, _plain(code), clock.now().timestamp())
    codes = [secrets.token_hex(RECOVERY_BYTES) for _ in range(RECOVERY_CODES)]
    with transaction.atomic():
        credentials.lock_unchanged(user)
        locked = User.objects.get(pk=user.pk)
        if step is None or locked.second_factor_at is not None:
            raise SecondFactorRefused
        SecondFactor.objects.create(
            user=locked,
            sealed_secret=signing.encrypt_secret(secret),
            last_step=step,
            recovery_hashes=[hash_token(each) for each in codes],
        )
        user.second_factor_at = locked.second_factor_at = clock.now()
        locked.save(update_fields=["second_factor_at"])
        _notify(user, "Your account has a second factor", "A second factor was set up for your account.")
    return ["-".join(each[at : at + 5] for at in range(0, len(each), 5)) for each in codes]


def check(user: User, code: str) -> None:
    """Use a code up; raises SecondFactorRefused for a wrong one, and for one that opened before."""
    plain = _plain(code)
    with transaction.atomic():
        factor = SecondFactor.objects.select_for_update().filter(user=user).first()
        if factor is None:
            raise SecondFactorRefused
        step = totp.find_step(_secret_of(factor), plain, clock.now().timestamp())
        if step is not None and step > factor.last_step:
            factor.last_step = step
        elif hash_token(plain) in factor.recovery_hashes:
            factor.recovery_hashes.remove(hash_token(plain))
            left = len(factor.recovery_hashes)
            text = f"A recovery code was used to sign in to your account; {left} are left."
            _notify(user, "A recovery code was used", text)
        else:
            raise SecondFactorRefused
        factor.save(update_fields=["last_step", "recovery_hashes"])


def check_sign_in(user: User, code: str) -> None:
    """Return where this user may sign in with this code, or needs none.

    Raises SecondFactorMissing for an operator who has to set one up, SecondFactorRequired, SecondFactorRefused.
    """
    if is_due(user):
        raise SecondFactorMissing(address=f"{settings.SOUK_API_URL}/second-factor")
    if user.second_factor_at is None:
        return
    if not code:
        raise SecondFactorRequired
    check(user, code)


def disable(user: User) -> bool:
    """The user has none from now on; whether they had one. An operator is asked to set another one up."""
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        deleted, _ = SecondFactor.objects.filter(user=user).delete()
        user.second_factor_at = None
        user.save(update_fields=["second_factor_at"])
        if deleted:
            _notify(user, "Your second factor was removed", "The second factor of your account was removed.")
    return bool(deleted)


def _plain(code: str) -> str:
    return "".join(code[:CODE_CHARACTERS_MAX].split()).replace("-", "").lower()


def _secret_of(factor: SecondFactor) -> str:
    try:
        return signing.decrypt_secret(factor.sealed_secret)
    except InvalidToken:  # SOUK_SECRET_KEY is another one now: an operator removes the factor on the server
        raise SecondFactorRefused from None


def _notify(user: User, subject: str, text: str) -> None:
    text += (
        '\n\nIf it was not you, set a new password ("Password forgotten?" on the page for signing in) and ask the'
        " operator of the marketplace for help."
    )
    mailing.notify([user.pk], f"second-factor:{new_id()}", subject=subject, text=text)
