"""The rolling reserve: a part of a new provider's pay stays for a while, against chargebacks and faults found late.

keep (before each payout of a provider on probation) -> release_ripe (SOUK_RESERVE_DAYS after the pay was released)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Min, Sum

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.models import Account, ReserveSlice
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock

SLICES_PER_RELEASE_MAX: Final = 2_000
RELEASES_PER_CALL_MAX: Final = 50
STRANDED_PER_RELEASE_MAX: Final = 200


Owner = tuple[UUID, int]  # a provider and an asset

_NEW = """
    SELECT p.id FROM unnest(%(providers)s::uuid[]) AS p (id)
    WHERE NOT EXISTS (
        SELECT 1 FROM billing_settlementshare s JOIN billing_settlement t ON t.id = s.settlement_id
        WHERE s.provider_id = p.id AND t.created_at <= %(since)s
    ) OR %(settlements)s > (
        SELECT count(*) FROM (
            SELECT 1 FROM billing_settlementshare s WHERE s.provider_id = p.id LIMIT %(settlements)s
        ) few
    )
"""
# Of each share its part, oldest first, for as long as there is something left: `upto` is what all parts up to this one
# come to, so that what is kept of it is what min(part, left) one after the other would keep.
_KEEP = """
    WITH unseen AS (
        SELECT s.id, s.provider_id, t.asset_id, s.released_at, o.units, div(s.paid * %(bps)s, 10000) AS part
        FROM unnest(%(providers)s::uuid[], %(assets)s::int[], %(units)s::numeric[]) AS o (provider_id, asset_id, units)
        JOIN billing_settlementshare s ON s.provider_id = o.provider_id
        JOIN billing_settlement t ON t.id = s.settlement_id AND t.asset_id = o.asset_id
        WHERE s.released_at > %(since)s
          AND NOT EXISTS (SELECT 1 FROM billing_reserveslice r WHERE r.share_id = s.id)
    ), running AS (
        SELECT *, sum(part) OVER (PARTITION BY provider_id, asset_id ORDER BY released_at, id) AS upto FROM unseen
    ), kept AS (
        INSERT INTO billing_reserveslice (share_id, provider_id, asset_id, amount, release_at, released, created_at)
        SELECT id, provider_id, asset_id, least(upto, units) - least(upto - part, units),
               released_at + %(stay)s, 0, %(now)s
        FROM running RETURNING provider_id, asset_id, amount
    )
    SELECT provider_id, asset_id, sum(amount) FROM kept GROUP BY provider_id, asset_id HAVING sum(amount) > 0
"""
_STRANDED = """
    SELECT a.owner_id, a.asset_id FROM billing_account a
    WHERE a.kind = 'provider_reserve' AND NOT a.is_frozen
      AND a.credits_posted - a.debits_posted - a.debits_pending > (
          SELECT coalesce(sum(r.amount), 0) FROM billing_reserveslice r
          WHERE r.provider_id = a.owner_id AND r.asset_id = a.asset_id AND r.released_at IS NULL
      )
    ORDER BY a.id LIMIT %(most)s
"""


def is_on_probation(provider_id: UUID, now: datetime | None = None) -> bool:
    """Whether this provider is new: its first days, or its first settlements, whichever last longer."""
    return bool(on_probation([provider_id], now))


def on_probation(provider_ids: Collection[UUID], now: datetime | None = None) -> set[UUID]:
    """Which of these are new."""
    since = (now or clock.now()) - timedelta(days=settings.SOUK_PROBATION_DAYS)
    values: dict[str, Any] = {
        "providers": list(provider_ids),
        "since": since,
        "settlements": settings.SOUK_PROBATION_SETTLEMENTS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_NEW, values)
        return {row[0] for row in cursor.fetchall()}


def keep(available: Mapping[Owner, int]) -> dict[Owner, int]:
    """Move the reserve's part of every share that was released and not looked at yet; how much that was of whom.

    A share is looked at once, whatever the outcome. `available` is what each provider has. The caller's transaction
    holds their accounts, and their payout settings, so that nobody else keeps for them.
    """
    now, bps, stay = clock.now(), settings.SOUK_RESERVE_BPS, timedelta(days=settings.SOUK_RESERVE_DAYS)
    new = on_probation({provider_id for provider_id, _ in available}, now) if bps else set()
    owners = [owner for owner in available if owner[0] in new]
    if not owners:
        return {}
    values: dict[str, Any] = {
        "providers": [provider_id for provider_id, _ in owners],
        "assets": [asset_id for _, asset_id in owners],
        "units": [max(available[owner], 0) for owner in owners],
        "bps": bps,
        "since": now - stay,
        "stay": stay,
        "now": now,
    }
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, values)
        kept = {(provider_id, asset_id): int(units) for provider_id, asset_id, units in cursor.fetchall()}
    names = [_names(owner) for owner in kept]
    accounts = open_accounts([name for pair in names for name in pair])
    ledger.post(
        [
            ledger.NewTransfer(source, target, units, TransferCode.RESERVE_KEPT)
            for source, target, units in zip(accounts[::2], accounts[1::2], kept.values(), strict=True)
        ]
    )
    return kept


def release_ripe(now: datetime | None = None) -> int:
    """Give back every slice whose time is over; how many that were. Two at once release each slice once."""
    now = now or clock.now()
    released = 0
    for _ in range(RELEASES_PER_CALL_MAX):
        batch = _release_batch(now)
        released += batch
        if batch < SLICES_PER_RELEASE_MAX:
            break
    _release_stranded()
    return released


def next_release(provider_id: UUID, *, asset_id: int) -> tuple[datetime, int] | None:
    """When the oldest slices of this provider come back, and how much then."""
    waiting = ReserveSlice.objects.filter(provider_id=provider_id, asset_id=asset_id, released_at=None, amount__gt=0)
    first = waiting.aggregate(at=Min("release_at"))["at"]
    if first is None:
        return None
    until = first.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return first, int(waiting.filter(release_at__lt=until).aggregate(total=Sum("amount"))["total"])


def _release_batch(now: datetime) -> int:
    with transaction.atomic():
        ripe = ReserveSlice.objects.filter(released_at=None, release_at__lte=now).order_by("release_at", "pk")
        slices = list(ripe.select_for_update(skip_locked=True)[:SLICES_PER_RELEASE_MAX])
        owners = sorted({(each.provider_id, each.asset_id) for each in slices})
        reserves = open_accounts([AccountName(AccountKind.PROVIDER_RESERVE, o, asset_id=a) for o, a in owners])
        availables = open_accounts([AccountName(AccountKind.PROVIDER_AVAILABLE, o, asset_id=a) for o, a in owners])
        # Both kinds at once and in one order: a payout holds them too.
        locked = Account.objects.filter(pk__in=[each.pk for each in reserves + availables]).order_by("pk")
        left = {
            (account.owner_id, account.asset_id): account.available
            for account in locked.select_for_update(no_key=True)
            if account.kind == AccountKind.PROVIDER_RESERVE and not account.is_frozen
        }
        slices = [each for each in slices if (each.provider_id, each.asset_id) in left]  # the others are frozen
        for each in slices:
            key = (each.provider_id, each.asset_id)
            each.released = min(each.amount, left[key])  # a chargeback or a slash may have taken some
            left[key] -= each.released
            each.released_at = now
        ReserveSlice.objects.bulk_update(slices, ["released", "released_at"])
        totals = dict.fromkeys(owners, 0)
        for each in slices:
            totals[each.provider_id, each.asset_id] += each.released
        ledger.post(
            [
                ledger.NewTransfer(reserve, available, totals[key], TransferCode.RESERVE_RELEASED)
                for key, reserve, available in zip(owners, reserves, availables, strict=True)
                if totals[key]
            ]
        )
        return len(slices)


def _release_stranded() -> None:
    """Let go of what no slice stands for: a chargeback took it, its slice ended short, and it was won afterwards."""
    with connection.cursor() as cursor:
        cursor.execute(_STRANDED, {"most": STRANDED_PER_RELEASE_MAX})
        owners: list[Owner] = list(cursor.fetchall())
    for owner in owners:
        with transaction.atomic():
            available, reserve = open_accounts(_names(owner))
            both = Account.objects.filter(pk__in=[available.pk, reserve.pk]).order_by("pk")
            locked = {account.pk: account for account in both.select_for_update(no_key=True)}
            waiting = ReserveSlice.objects.filter(provider_id=owner[0], asset_id=owner[1], released_at=None)
            stands_for = int(waiting.aggregate(total=Sum("amount"))["total"] or 0)
            units = locked[reserve.pk].available - stands_for
            if units > 0 and not locked[reserve.pk].is_frozen:
                ledger.post([ledger.NewTransfer(reserve, available, units, TransferCode.RESERVE_RELEASED)])


def _names(owner: Owner) -> tuple[AccountName, AccountName]:
    provider_id, asset_id = owner
    return (
        AccountName(AccountKind.PROVIDER_AVAILABLE, provider_id, asset_id=asset_id),
        AccountName(AccountKind.PROVIDER_RESERVE, provider_id, asset_id=asset_id),
    )
