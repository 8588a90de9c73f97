"""Key grants: what the holder of a key may do at one gateway until the grant expires.

Money is given out in slices, so that all gateways in sum never let more be spent than there is: a slice of the key's
budget, and a slice of the organisation's balance for other organisations' endpoints, within the spend limits of the
organisation and of the member who made the key. A slice is a row until its grant
expires. By then its spending is booked, or its gateway has died: what a dead gateway let through and never reported is
at most that slice. A new grant replaces the gateway's last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q, Sum

from billing.account_kinds import AccountKind
from billing.charging import limits
from billing.models import Account
from billing.models.ledger import USD_ASSET_ID
from jobs.endpoints.spend_limits import CallBounds
from jobs.gateway.messages import KEYS_MAX, KeyGrant
from jobs.models import Endpoint, EndpointKey, Gateway, KeySlice, UsageRecord
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures

GRANT_SECONDS: Final = 60  # how long a gateway may use a grant, and for how long a dead gateway's slices stay reserved
FRESH_SHARE: Final = 0.5  # a slice with more than this part of its time left is granted again without a write
GATEWAY_SILENT_SECONDS: Final = 120  # then nothing is kept ready for it
SLICE_USD_MICROS_MAX: Final = 5_000_000  # of one key at one gateway: what a gateway that dies may cost
SLICE_USD_MICROS_MIN: Final = 10_000  # smaller ones only where no more is left
KEYS_A_BALANCE: Final = 4  # so many keys find a part of their organisation's balance at each gateway
MS_PER_SECOND: Final = 1000

REVOKED, EXPIRED, BUDGET_EXHAUSTED, NO_MONEY = "revoked", "expired", "budget_exhausted", "no_money"
SPEND_LIMIT = "spend_limit"


def key_grants_for(
    gateway_id: UUID, *, key_hashes: Collection[str] = (), key_ids: Collection[UUID] = ()
) -> list[KeyGrant]:
    """What the holders of these keys may do at this gateway; keys that do not exist are left out."""
    if not key_hashes and not key_ids:
        return []
    named = Q(key_hash__in=list(key_hashes)[:KEYS_MAX]) | Q(pk__in=list(key_ids)[:KEYS_MAX])
    with transaction.atomic():
        # 1. One who gives out an organisation's money at a time; in one order, so that two never wait for each other.
        organisations = set(EndpointKey.objects.filter(named).values_list("organisation_id", flat=True))
        _lock(organisations)
        limits.hold(organisations)  # a job that is submitted at this moment sees the slices, or they see its cap
        keys = list(EndpointKey.objects.filter(named).order_by("pk")[: 2 * KEYS_MAX])
        slices_left = _Slices.of(gateway_id, keys)
        # 2. What each may, and its slice of it.
        now = clock.now()
        grants, slices = [], []
        for key in keys:
            with log_failures("A key cannot be read, and opens nothing.", key_id=str(key.pk)):
                grant, cut = _grant_and_slice(key, slices_left, gateway_id, now)
                grants.append(grant)
                if cut is not slices_left.own.get(key.pk):
                    slices.append(cut)
        KeySlice.objects.bulk_create(
            slices,
            update_conflicts=True,
            unique_fields=["key", "gateway_id"],
            update_fields=["budget_usd_micros", "foreign_usd_micros", "expires_at", "organisation_id"],
        )
        return grants


def refused_key_grants(gateway_id: UUID) -> list[KeyGrant]:
    """Refusals for revoked and expired keys that this gateway has a grant of: revoking waits for no renewal."""
    now = clock.now()
    held = EndpointKey.objects.filter(slices__gateway_id=gateway_id, slices__expires_at__gt=now)
    over = held.filter(Q(revoked_at__isnull=False) | Q(expires_at__lte=now)).order_by("pk")
    refusals = []
    for key in over[:KEYS_MAX]:
        with log_failures("A key that is over cannot be read.", key_id=str(key.pk)):
            refusals.append(_refuse(key, _why_over(key, now), now))
    return refusals


@dataclass
class _Slices:
    """What is left to give out now, to this gateway."""

    gateways: int
    held_elsewhere: dict[UUID, int]  # key -> of its budget, by other gateways
    own: dict[UUID, KeySlice]  # key -> what this gateway was given, and for long enough
    balances: defaultdict[UUID, int]  # organisation -> what nobody may spend yet
    bounds: CallBounds  # by spend limits
    own_endpoints: defaultdict[UUID, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, gateway_id: UUID, keys: Collection[EndpointKey]) -> _Slices:
        """In a few queries, however many keys these are, and three for each spend limit."""
        now, key_ids = clock.now(), [key.pk for key in keys]
        organisations = {key.organisation_id for key in keys}
        alive = now - timedelta(seconds=GATEWAY_SILENT_SECONDS)
        gateways = Gateway.objects.filter(Q(seen_at__gt=alive) | Q(pk=gateway_id)).count()
        taken = KeySlice.objects.filter(expires_at__gt=now).exclude(gateway_id=gateway_id, key_id__in=key_ids)
        elsewhere = taken.filter(key_id__in=key_ids).values_list("key_id").annotate(Sum("budget_usd_micros"))
        promised = taken.filter(organisation_id__in=organisations).values_list("organisation_id")
        balances = defaultdict(int, _balances(organisations))
        for organisation_id, amount in promised.annotate(Sum("foreign_usd_micros")):
            balances[organisation_id] -= amount
        for organisation_id, amount in unpaid(organisations):
            balances[organisation_id] -= amount
        fresh = now + timedelta(seconds=GRANT_SECONDS * FRESH_SHARE)
        given = KeySlice.objects.filter(gateway_id=gateway_id, key_id__in=key_ids, expires_at__gt=fresh)
        slices_left = cls(
            max(1, gateways),
            dict(elsewhere),
            {each.key_id: each for each in given},
            balances,
            CallBounds.of(gateway_id, keys),
        )
        own = Endpoint.objects.filter(organisation_id__in=organisations, is_open=True)
        for organisation_id, endpoint_id in own.values_list("organisation_id", "pk"):
            slices_left.own_endpoints[organisation_id].add(str(endpoint_id))
        return slices_left

    def cut_budget(self, key: EndpointKey, now: datetime) -> int:
        """Of the key's budget, what this gateway may let it spend."""
        left = (key.budget_usd_micros or 0) - spent_of(key, now) - self.held_elsewhere.get(key.pk, 0)
        return _cut(left, self.gateways)

    def cut_balance(self, key: EndpointKey) -> int:
        """Of the organisation's balance, what this gateway may let the key spend elsewhere, within its limits."""
        left = min(self.balances[key.organisation_id], self.bounds.least(key))
        part = _cut(left, self.gateways * KEYS_A_BALANCE)
        self.balances[key.organisation_id] -= part
        self.bounds.take(key, part)
        return part


def unpaid(organisation_ids: Iterable[UUID]) -> list[tuple[UUID, int]]:
    """Organisation -> what its calls of others' endpoints cost that it has not paid for yet."""
    rows = UsageRecord.objects.filter(
        ~Q(organisation_id=F("owner_id")), organisation_id__in=organisation_ids, payment=None, cost_usd_micros__gt=0
    )
    return [(each, int(sum_)) for each, sum_ in rows.values_list("organisation_id").annotate(Sum("cost_usd_micros"))]


def spent_of(key: EndpointKey, now: datetime) -> int:
    """What counts against its budget."""
    if key.budget_period == EndpointKey.Period.TOTAL:
        return key.spent_usd_micros
    return key.spent_month_usd_micros if key.spent_month == month_of(now) else 0


def month_of(moment: datetime) -> date:
    """The first day of its month."""
    return moment.date().replace(day=1)


def _grant_and_slice(
    key: EndpointKey, slices_left: _Slices, gateway_id: UUID, now: datetime
) -> tuple[KeyGrant, KeySlice]:
    cut = KeySlice(
        key=key,
        organisation_id=key.organisation_id,
        gateway_id=gateway_id,
        expires_at=now + timedelta(seconds=GRANT_SECONDS),
    )
    if why := _why_over(key, now):
        return _refuse(key, why, now), cut
    budget = None
    if key.budget_usd_micros is not None:
        cut.budget_usd_micros = budget = slices_left.cut_budget(key, now)
        if not budget:
            return _refuse(key, BUDGET_EXHAUSTED, now), cut
    own = slices_left.own_endpoints[key.organisation_id]
    named = None if key.endpoint_ids is None else set(key.endpoint_ids)
    foreign = None
    if named is None or named - own:
        is_limited = slices_left.bounds.least(key) <= 0
        cut.foreign_usd_micros = foreign = slices_left.cut_balance(key)
        if is_limited and not own:
            return _refuse(key, SPEND_LIMIT, now), cut
        if not foreign and not is_limited:  # then it reaches its organisation's own endpoints, where it has any
            named = own if named is None else named & own
            if not named:
                return _refuse(key, NO_MONEY, now), cut
    reached = None if named is None else [UUID(each) for each in sorted(named)]
    amounts = {"budget_usd_micros": budget, "foreign_usd_micros": foreign, "endpoint_ids": reached}
    grant = _grant_now(key, now).model_copy(update=amounts)
    return _reuse_slice(grant, cut, slices_left.own.get(key.pk))


def _reuse_slice(grant: KeyGrant, cut: KeySlice, given: KeySlice | None) -> tuple[KeyGrant, KeySlice]:
    """Within the slice that the gateway has, where that is not much less than the new one would be: nothing is written.

    A gateway names the keys in use every second; most of the time nothing about them has changed.
    """
    if given is None or any(
        2 * getattr(given, name) < getattr(cut, name) for name in ("budget_usd_micros", "foreign_usd_micros")
    ):
        return grant, cut
    within = {
        name: None if getattr(grant, name) is None else min(getattr(grant, name), getattr(given, name))
        for name in ("budget_usd_micros", "foreign_usd_micros")
    }
    expires_at_ms = min(grant.expires_at_ms, int(given.expires_at.timestamp() * MS_PER_SECOND))
    return grant.model_copy(update={**within, "expires_at_ms": expires_at_ms}), given


def _why_over(key: EndpointKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return REVOKED
    return EXPIRED if key.expires_at is not None and key.expires_at <= now else ""


def _refuse(key: EndpointKey, why: str, now: datetime) -> KeyGrant:
    return _grant_now(key, now).model_copy(update={"refused": why})


def _grant_now(key: EndpointKey, now: datetime) -> KeyGrant:
    until = now + timedelta(seconds=GRANT_SECONDS)
    if key.expires_at is not None and now < key.expires_at < until:
        until = key.expires_at
    return KeyGrant(
        key_id=key.pk,
        key_hash=key.key_hash,
        kind=key.kind,
        organisation_id=key.organisation_id,
        endpoint_ids=None if key.endpoint_ids is None else [UUID(each) for each in key.endpoint_ids],
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        in_flight_max=key.in_flight_max,
        expires_at_ms=int(until.timestamp() * MS_PER_SECOND),
    )


def _cut(left: int, parts: int) -> int:
    """One gateway's part of what is left: fair among those that may request one, and not too small to be of use."""
    if left <= 0:
        return 0
    return min(SLICE_USD_MICROS_MAX, max(left // parts, min(left, SLICE_USD_MICROS_MIN)))


def _balances(organisation_ids: Collection[UUID]) -> list[tuple[UUID, int]]:
    rows = Account.objects.filter(
        owner_id__in=organisation_ids, kind=AccountKind.CUSTOMER_AVAILABLE, asset_id=USD_ASSET_ID, is_frozen=False
    )
    return [
        (owner_id, int(credits - debits - pending))
        for owner_id, credits, debits, pending in rows.values_list(
            "owner_id", "credits_posted", "debits_posted", "debits_pending"
        )
        if owner_id is not None
    ]


def _lock(organisation_ids: Iterable[UUID]) -> None:
    """Until the commit."""
    names = [f"slices:{each}" for each in sorted(organisation_ids)]
    if names:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(name, 0))"
                " FROM (SELECT unnest(%s::text[]) AS name ORDER BY 1) AS names",
                [names],
            )
