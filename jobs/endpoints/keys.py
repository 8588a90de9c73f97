"""Keys for endpoints: `sk-souk-` and 256 random bits. The text is shown once; the database holds its SHA-256.

issue          a key for programs, with what it may do
issue_session  a key for a page that somebody has open
revoke         it opens nothing from the gateways' next sync on
revoke_all_of  every one that a user made, when their password is set anew or they leave the organisation
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from jobs.endpoints.errors import KeyLifeInvalid, KeyNotFound, KeyReachesNothing, TooManyEndpointKeys
from jobs.endpoints.key_grants import key_grants_for, refused_key_grants
from jobs.models import Endpoint, EndpointKey, EndpointVersion, UsageRemainder
from marketplace.accounts import credentials
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock
from marketplace.foundation.tokens import hash_token

BRAND: Final = "sk-souk-"
SECRET_BYTES: Final = 32
SECRET_CHARACTERS: Final = 43  # of base 62 that hold them
PREFIX_CHARACTERS: Final = len(BRAND) + 6  # of the text, kept for people to know it by
NAME_CHARACTERS_MAX: Final = 120
LIVE_KEYS_MAX: Final = 1_000  # of one organisation
ENDPOINTS_MAX: Final = 100  # that one key names
SESSION_SECONDS: Final = 3600
SESSIONS_MAX: Final = 100  # live ones of one user
SESSION_REQUESTS_PER_MINUTE: Final = 60
SESSION_IN_FLIGHT_MAX: Final = 4
FORGET_PER_SWEEP_MAX: Final = 5_000
FORGET_SESSIONS_AFTER: Final = timedelta(days=1)
FORGET_SPENT_AFTER: Final = timedelta(days=32)  # a month's spending counts against the member who made the key

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

__all__ = [
    "KeyLimits",
    "forget_sessions",
    "issue",
    "issue_session",
    "key_grants_for",
    "live",
    "refused_key_grants",
    "revoke",
    "revoke_all_of",
]


@dataclass(frozen=True)
class KeyLimits:
    """What a key may use; None: no such limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    in_flight_max: int | None = None
    budget_usd_micros: int | None = None
    budget_period: str = EndpointKey.Period.TOTAL.value


def issue(
    *,
    organisation: Organisation,
    user: User | None,
    name: str,
    endpoint_ids: Sequence[UUID] | None = None,
    limits: KeyLimits | None = None,
    expires_at: datetime | None = None,
) -> tuple[EndpointKey, str]:
    """A new key and its text, which is kept nowhere. `endpoint_ids`: None is all of the organisation's and all public.

    Raises KeyReachesNothing, KeyLifeInvalid, TooManyEndpointKeys.
    """
    if expires_at is not None and expires_at <= clock.now():
        raise KeyLifeInvalid()
    own = EndpointKey.objects.filter(live(), organisation=organisation, kind=EndpointKey.Kind.ENDPOINT)
    if (count := own.count()) >= LIVE_KEYS_MAX:
        raise TooManyEndpointKeys(count=count)
    return _make(
        EndpointKey.Kind.ENDPOINT,
        organisation,
        user,
        name,
        endpoint_ids=endpoint_ids,
        limits=limits or KeyLimits(),
        expires_at=expires_at,
    )


def issue_session(
    *,
    organisation: Organisation,
    user: User,
    endpoint_ids: Sequence[UUID] | None = None,
    seconds: int = SESSION_SECONDS,
) -> tuple[EndpointKey, str]:
    """A key for one user's open page: it lives `seconds`, at most SESSION_SECONDS, and is slow enough for a person.

    Raises KeyReachesNothing, TooManyEndpointKeys.
    """
    sessions = EndpointKey.objects.filter(live(), organisation=organisation, kind=EndpointKey.Kind.SESSION)
    if (count := sessions.filter(made_by=user).count()) >= SESSIONS_MAX:
        raise TooManyEndpointKeys(count=count)
    limits = KeyLimits(requests_per_minute=SESSION_REQUESTS_PER_MINUTE, in_flight_max=SESSION_IN_FLIGHT_MAX)
    expires_at = clock.now() + timedelta(seconds=min(seconds, SESSION_SECONDS))
    return _make(
        EndpointKey.Kind.SESSION,
        organisation,
        user,
        "A page",
        endpoint_ids=endpoint_ids,
        limits=limits,
        expires_at=expires_at,
    )


def revoke(key_id: UUID, *, organisation: Organisation) -> EndpointKey:
    """From the gateways' next sync on the key opens nothing; a repeat keeps the first moment. Raises KeyNotFound."""
    with transaction.atomic():
        key = EndpointKey.objects.select_for_update(of=("self",)).filter(pk=key_id, organisation=organisation).first()
        if key is None:
            raise KeyNotFound()
        if key.revoked_at is None:
            key.revoked_at = clock.now()
            key.save(update_fields=["revoked_at"])
        return key


def revoke_all_of(user_id: UUID, organisation_id: UUID | None = None) -> None:
    """From the gateways' next sync on no key that this user made opens anything, in one organisation or in all."""
    keys = EndpointKey.objects.filter(made_by=user_id, revoked_at=None)
    if organisation_id is not None:
        keys = keys.filter(organisation=organisation_id)
    keys.update(revoked_at=clock.now())


def live() -> Q:
    """Keys that are neither revoked nor expired."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=clock.now()))


def forget_sessions() -> int:
    """Delete the keys of pages that were closed long ago; their use stays in the books. How many."""
    is_over = Q(spent_usd_micros=0, expires_at__lt=clock.now() - FORGET_SESSIONS_AFTER)
    is_over |= Q(expires_at__lt=clock.now() - FORGET_SPENT_AFTER)
    old = EndpointKey.objects.filter(is_over, kind=EndpointKey.Kind.SESSION).order_by("expires_at")
    ids = list(old.values_list("pk", flat=True)[:FORGET_PER_SWEEP_MAX])
    EndpointKey.objects.filter(pk__in=ids).delete()
    UsageRemainder.objects.filter(key_id__in=ids).delete()  # of each less than a micro-dollar, and no request follows
    return len(ids)


def callable_endpoints(organisation: Organisation) -> QuerySet[Endpoint]:
    """The open endpoints that the organisation may call: its own, and public ones."""
    public = EndpointVersion.objects.filter(state__in=["starting", "live"], spec__serve__public=True)
    may = Q(organisation=organisation) | Q(pk__in=public.values("endpoint_id"))
    return Endpoint.objects.filter(may, is_open=True)


def _make(
    kind: EndpointKey.Kind,
    organisation: Organisation,
    user: User | None,
    name: str,
    *,
    endpoint_ids: Sequence[UUID] | None,
    limits: KeyLimits,
    expires_at: datetime | None,
) -> tuple[EndpointKey, str]:
    if endpoint_ids is not None:
        _validate_reach(organisation, endpoint_ids)
    text = BRAND + _base62(int.from_bytes(secrets.token_bytes(SECRET_BYTES)))
    with transaction.atomic():
        if user is not None:
            credentials.lock_unchanged(user)
            credentials.lock_member(user.pk, organisation.pk)
        key = EndpointKey.objects.create(
            organisation=organisation,
            made_by=user,
            kind=kind,
            name=name[:NAME_CHARACTERS_MAX],
            prefix=text[:PREFIX_CHARACTERS],
            key_hash=hash_token(text),
            endpoint_ids=None if endpoint_ids is None else sorted(str(each) for each in set(endpoint_ids)),
            **dataclasses.asdict(limits),
            expires_at=expires_at,
        )
    return key, text


def _validate_reach(organisation: Organisation, endpoint_ids: Sequence[UUID]) -> None:
    wanted = set(endpoint_ids)
    known = set(callable_endpoints(organisation).filter(pk__in=wanted).values_list("pk", flat=True))
    if not wanted or len(wanted) > ENDPOINTS_MAX or wanted - known:
        raise KeyReachesNothing(endpoint_ids=sorted(str(each) for each in wanted - known)[:ENDPOINTS_MAX])


def _base62(number: int) -> str:
    digits = []
    for _ in range(SECRET_CHARACTERS):
        number, digit = divmod(number, len(_BASE62))
        digits.append(_BASE62[digit])
    return "".join(digits)
