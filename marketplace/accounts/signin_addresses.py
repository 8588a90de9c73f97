"""Which addresses an account signed in from: strangers' wrong passwords from elsewhere do not count against those.

remember     after a right password: the newest ADDRESSES_MAX of a user are kept, for KEEP_DAYS
is_known     whether this account signed in from there
forget_old   once a day
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.utils.crypto import salted_hmac

from marketplace.accounts.models import SigninAddress, User
from marketplace.foundation import clock
from marketplace.foundation.addresses.client_address import UNKNOWN
from marketplace.foundation.addresses.forwarded import counted_address

ADDRESSES_MAX: Final = 20  # of one user: so many counters of wrong passwords are the most that an account has
KEEP_DAYS: Final = 90


def remember(user: User, address: str) -> None:
    """The user signed in from there; an address that nobody saw is none."""
    if address == UNKNOWN:
        return
    SigninAddress.objects.update_or_create(
        user=user, address_hash=hash_of(address), defaults={"signed_in_at": clock.now()}
    )
    newest = SigninAddress.objects.filter(user=user).order_by("-signed_in_at", "-pk").values_list("pk", flat=True)
    SigninAddress.objects.filter(user=user).exclude(pk__in=list(newest[:ADDRESSES_MAX])).delete()


def is_known(email: str, address_hash: str) -> bool:
    """Whether the account of this address for mail signed in from there; False for nobody's."""
    return SigninAddress.objects.filter(_is_kept(), user__email=email, address_hash=address_hash).exists()


def hashes_of(email: str) -> list[str]:
    """All that the account signed in from."""
    return list(SigninAddress.objects.filter(user__email=email.strip().lower()).values_list("address_hash", flat=True))


def hash_of(address: str) -> str:
    """A keyed hash, because addresses are personal; of IPv6 that of the network which one customer has."""
    return salted_hmac("souk.signin.address", counted_address(address), algorithm="sha256").hexdigest()


def forget_old() -> int:
    """Delete addresses that nobody signed in from for KEEP_DAYS; returns the number of rows."""
    deleted, _ = SigninAddress.objects.filter(~_is_kept()).delete()
    return deleted


def _is_kept() -> Q:
    return Q(signed_in_at__gte=clock.now() - timedelta(days=KEEP_DAYS))
