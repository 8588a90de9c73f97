"""How often a password may be wrong: by account and by address, whatever the way in.

    take       before a password is looked at: counts the attempt, or raises SigninLocked
    forgive    after a right one: the count that it was taken from starts over, the address gets its attempt back
    unlock     by an operator; but for codes also by whoever proves that the account's mail is theirs
    take_mail  before a mail that anybody may ask for: counts it

An account has one count for all strangers, and one for each address that it signed in from before
(`signin_addresses.py`): whoever guesses from elsewhere locks the strangers' count, and its owner still signs in.

Counted in PostgreSQL, so that the limits hold while Redis is away; where PostgreSQL is away nobody signs in at all. An
attempt is counted before its password is looked at, so that of a hundred at the same moment none slips through. An
address of nobody is counted and locked like that of an account: a lock shows nothing. Each lock of an account is twice
as long as the one before, until somebody signs in or nothing happened for KEEP_DAYS.

`take` must not be called within a transaction that a wrong password rolls back: the count would go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import F
from django.utils.crypto import salted_hmac

from marketplace.accounts import mailing, signin_addresses
from marketplace.accounts.errors import SigninLocked
from marketplace.accounts.models import SigninLimit, User
from marketplace.foundation import clock
from marketplace.foundation.addresses.forwarded import counted_address

WINDOW_SECONDS: Final = 900  # failures further apart than this are not counted together
KEEP_DAYS: Final = 7
DAY_SECONDS: Final = 86_400
LOCKS_MAX: Final = 30  # in a row that are counted; the pause has long reached its most


@dataclass(frozen=True)
class Limit:
    """So many failures within the window, then a pause that doubles up to its most."""

    failures_max: int
    lock_seconds_first: int
    lock_seconds_max: int
    window_seconds: int = WINDOW_SECONDS

    def lock_seconds(self, locks: int) -> int:
        """How long the lock is that comes after so many others."""
        return int(min(self.lock_seconds_first * 2 ** min(locks, LOCKS_MAX), self.lock_seconds_max))


# Many people may share an address: it has more attempts, and its pause does not grow.
LIMITS: Final[Mapping[str, Limit]] = {
    "account": Limit(failures_max=10, lock_seconds_first=900, lock_seconds_max=86_400),
    # The same account from an address that it signed in from before.
    "account_from": Limit(failures_max=10, lock_seconds_first=900, lock_seconds_max=86_400),
    "address": Limit(failures_max=30, lock_seconds_first=900, lock_seconds_max=900),
    # Codes of the second factor, given by whoever knew the password. A right one starts the count over, so wrong ones
    # are counted together however slowly they come: else ten every quarter of an hour would never be noticed.
    "code": Limit(
        failures_max=10, lock_seconds_first=900, lock_seconds_max=86_400, window_seconds=KEEP_DAYS * DAY_SECONDS
    ),
    # Mails that strangers may have sent to one account; and accounts that one address may have mailed. The pause stays
    # below PASSWORD_RESET_TIMEOUT: whoever asks again and again leaves the owner a link that still holds.
    "mail": Limit(failures_max=3, lock_seconds_first=900, lock_seconds_max=1800),
    "mail_from": Limit(failures_max=3, lock_seconds_first=900, lock_seconds_max=1800),
    "mail_address": Limit(failures_max=20, lock_seconds_first=900, lock_seconds_max=900),
}


# What an account is counted under, by who asked, and how an operator reads of it.
STRANGERS: Final[Mapping[str, str]] = {
    "account": "wrong passwords from addresses that it never signed in from",
    "code": "wrong codes of the second factor",
    "mail": "mails asked for from addresses that it never signed in from",
}
OWN_ADDRESSES: Final[Mapping[str, str]] = {
    "account_from": "wrong passwords from an address that it signed in from before",
    "mail_from": "mails asked for from an address that it signed in from before",
}


PASSWORDS_TEXT: Final = (
    "Too many wrong passwords were given for your account {email}, so nobody can sign in to it with a password from"
    " there until {until}. Sessions and API keys go on working, and so does the password from other addresses that you"
    ' signed in from before; "Password forgotten?" ends the pause.\n\n'
    "If it was not you, somebody guesses: nothing was opened, and there is nothing that you must do. A long password"
    " that you use nowhere else cannot be guessed."
)
CODES_TEXT: Final = (
    "Somebody gave the right password of your account {email}, and too many wrong codes of its second factor: no code"
    " is taken until {until}.\n\n"
    'If it was not you, your password is known: set a new one ("Password forgotten?" on the page for signing in).'
)


def take(email: str, address: str) -> None:
    """Count one attempt; raises SigninLocked, for known and unknown accounts alike, where there were too many."""
    if row := _count("address", counted_address(address)):
        raise _locked(row)
    kind, name = _counter("account", email, address)
    if row := _count(kind, name):
        _notify(_name_of(email), row, PASSWORDS_TEXT)
        raise _locked(row)


def take_mail(email: str, address: str) -> bool:
    """Whether this account may be sent another mail that anybody may ask for; raises SigninLocked for an address."""
    if row := _count("mail_address", counted_address(address)):
        raise _locked(row)
    return _count(*_counter("mail", email, address)) is None


def forgive(user: User, address: str) -> None:
    """The password was right: the count that it was taken from starts over, and the address is known from now on."""
    kind, name = _counter("account", user.email, address)
    SigninLimit.objects.filter(key=key_of(kind, name)).delete()
    key = key_of("address", counted_address(address))
    SigninLimit.objects.filter(key=key, failures__gt=0).update(failures=F("failures") - 1)
    signin_addresses.remember(user, address)


def take_code(email: str) -> None:
    """Count one code of the second factor before it is looked at; raises SigninLocked where there were too many.

    For an account whose password was right: a stranger cannot lock it.
    """
    if row := _count("code", _name_of(email)):
        _notify(_name_of(email), row, CODES_TEXT)
        raise _locked(row)


def forgive_code(email: str) -> None:
    """The code was right."""
    SigninLimit.objects.filter(key=key_of("code", _name_of(email))).delete()


def unlock(email: str, *, codes: bool) -> list[str]:
    """All counts and locks of the account are forgotten, those of its mails too; returns what was, in words.

    `codes`: those of the second factor too. Not for whoever only reads the account's mail, who would guess for ever.
    """
    kinds = {kind: words for kind, words in STRANGERS.items() if codes or kind != "code"}
    keys = {key_of(kind, _name_of(email)): words for kind, words in kinds.items()}
    for address_hash in signin_addresses.hashes_of(email):
        keys |= {key_of(kind, _pair(email, address_hash)): words for kind, words in OWN_ADDRESSES.items()}
    with transaction.atomic():
        rows = list(SigninLimit.objects.select_for_update().filter(key__in=keys).order_by("key"))
        SigninLimit.objects.filter(key__in=[row.key for row in rows]).delete()
    return [_words(keys[row.key], row) for row in rows]


def forget_old() -> int:
    """Delete what counts no more; returns the number of rows."""
    deleted, _ = SigninLimit.objects.filter(began_at__lt=clock.now() - timedelta(days=KEEP_DAYS)).delete()
    return deleted


def key_of(kind: str, name: str) -> str:
    """The row's key: keyed hashes, because people type passwords into the wrong field, and addresses are personal."""
    return f"{kind}:{salted_hmac('souk.signin', name, algorithm='sha256').hexdigest()}"


def _counter(kind: str, email: str, address: str) -> tuple[str, str]:
    """Which counter an attempt belongs to: the account's for strangers, or that of an address it signed in from."""
    address_hash = signin_addresses.hash_of(address)
    if signin_addresses.is_known(_name_of(email), address_hash):
        return f"{kind}_from", _pair(email, address_hash)
    return kind, _name_of(email)


def _pair(email: str, address_hash: str) -> str:
    return f"{_name_of(email)} {address_hash}"


def _words(what: str, row: SigninLimit) -> str:
    is_locked = row.locked_until is not None and row.locked_until > clock.now()
    return f"{row.failures} {what}" + (f", locked until {row.locked_until:%Y-%m-%d %H:%M} UTC" if is_locked else "")


def _count(kind: str, name: str) -> SigninLimit | None:
    """Count one attempt; the locked row where it is one too many."""
    key = key_of(kind, name)
    with transaction.atomic():
        SigninLimit.objects.bulk_create([SigninLimit(key=key, began_at=clock.now())], ignore_conflicts=True)
        row = SigninLimit.objects.select_for_update().get(key=key)
        is_allowed = _advance(row, LIMITS[kind])
        row.save()
    return None if is_allowed else row


def _advance(row: SigninLimit, limit: Limit) -> bool:
    now = clock.now()
    if row.locked_until is not None and row.locked_until > now:
        return False
    if row.locked_until is not None or row.began_at < now - timedelta(seconds=limit.window_seconds):
        row.failures, row.began_at, row.locked_until = 0, now, None
    if row.failures < limit.failures_max:
        row.failures += 1
        return True
    row.locked_until = now + timedelta(seconds=limit.lock_seconds(row.locks))
    row.locks = min(row.locks + 1, LOCKS_MAX)
    return False


def _locked(row: SigninLimit) -> SigninLocked:
    until = row.locked_until or clock.now()
    return SigninLocked(retry_after_seconds=max(1, round((until - clock.now()).total_seconds())))


def _notify(email: str, row: SigninLimit, text: str) -> None:
    """One mail a lock."""
    user = User.objects.filter(email=email, is_active=True).first()
    if user is None or row.locked_until is None:
        return
    text = text.format(email=email, until=f"{row.locked_until:%Y-%m-%d %H:%M} UTC")
    what = f"signin-locked:{row.pk}:{row.locked_until.isoformat()}"
    mailing.notify([user.pk], what, subject="Signing in to your account is locked", text=text)


def _name_of(email: str) -> str:
    return email.strip().lower()
