"""A part of a new provider's pay stays for a while, against chargebacks and faults that are found late.

keep (before each payout of a provider on probation) -> release_ripe (SOUK_RESERVE_DAYS after the pay was released)
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, Min, OuterRef, Sum

from billing import ledger
from billing.chart import AccountName, open_accounts
from billing.kinds import AccountKind, TransferCode
from billing.models import Account, ReserveSlice, SettlementShare
from billing.money import split_fee
from marketplace.foundation import clock

SHARES_PER_KEEP_MAX: Final = 5_000  # what is more waits for the next payout, and is not paid before
SLICES_PER_RELEASE_MAX: Final = 2_000
RELEASES_PER_CALL_MAX: Final = 50


def is_on_probation(provider_id: UUID, now: datetime | None = None) -> bool:
    """Whether this provider is new: its first days, or its first settlements, whichever last longer."""
    now = now or clock.now()
    shares = SettlementShare.objects.filter(provider_id=provider_id)
    first = shares.aggregate(first=Min("settlement__created_at"))["first"]
    if first is None or first > now - timedelta(days=settings.SOUK_PROBATION_DAYS):
        return True
    return len(shares.values_list("pk")[: settings.SOUK_PROBATION_SETTLEMENTS]) < settings.SOUK_PROBATION_SETTLEMENTS


def keep(provider_id: UUID, *, asset_id: int) -> int:
    """Move the reserve's part of every share that was released and not looked at yet; how much that was.

    A share is looked at once, whatever the outcome. The caller's transaction holds the provider's payout settings, so
    that nobody else keeps for the same provider.
    """
    now = clock.now()
    bps = settings.SOUK_RESERVE_BPS
    since = now - timedelta(days=settings.SOUK_RESERVE_DAYS)
    if not bps or not is_on_probation(provider_id, now):
        return 0
    unseen = SettlementShare.objects.filter(
        ~Exists(ReserveSlice.objects.filter(share_id=OuterRef("pk"))),
        provider_id=provider_id,
        settlement__asset_id=asset_id,
        released_at__gt=since,
    ).order_by("released_at")
    shares = list(unseen[:SHARES_PER_KEEP_MAX])
    if not shares:
        return 0
    with transaction.atomic():
        names = [
            AccountName(kind, provider_id, asset_id=asset_id)
            for kind in (AccountKind.PROVIDER_AVAILABLE, AccountKind.PROVIDER_RESERVE)
        ]
        available, reserve = open_accounts(names)
        locked = Account.objects.filter(pk__in=[available.pk, reserve.pk]).order_by("pk")
        left = {account.pk: account.available for account in locked.select_for_update(no_key=True)}[available.pk]
        slices = []
        for share in shares:
            amount = min(split_fee(share.paid, bps)[0], max(left, 0))
            left -= amount
            release_at = (share.released_at or now) + timedelta(days=settings.SOUK_RESERVE_DAYS)
            slices.append(
                ReserveSlice(
                    share=share, provider_id=provider_id, asset_id=asset_id, amount=amount, release_at=release_at
                )
            )
        ReserveSlice.objects.bulk_create(slices)
        kept = sum(each.amount for each in slices)
        if kept:
            ledger.post([ledger.NewTransfer(available, reserve, kept, TransferCode.RESERVE_KEPT)])
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
