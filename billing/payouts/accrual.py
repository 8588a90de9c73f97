"""What a provider has earned up to now, and what of it comes when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q, Sum

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.models import Account, Asset, Payout, PayoutSettings, SettlementShare
from billing.money import BPS_WHOLE
from billing.payouts import rolling_reserve
from billing.payouts.statement import COLUMNS
from billing.rails import registry
from billing.states import PAYOUT_STATES_OPEN
from marketplace.foundation import clock


@dataclass(frozen=True)
class Accrual:
    """One asset of one provider, in base units."""

    asset: Asset
    pending: int  # inside the challenge window
    available: int
    reserve: int
    on_its_way: int  # set aside for a payout that has not arrived
    next_payout_at: datetime | None
    next_payout: int  # an estimate: what is available, and what will be by then
    next_release_at: datetime | None  # of the reserve
    next_release: int
    is_on_probation: bool
    last_error: str


def accrued(provider_id: UUID) -> list[Accrual]:
    """One row for every asset that this provider has, or wants to be paid in."""
    accounts = Account.objects.filter(owner_id=provider_id, kind__in=[str(kind) for kind in COLUMNS])
    settings_of = {row.asset_id: row for row in PayoutSettings.objects.filter(provider_id=provider_id)}
    assets = Asset.objects.filter(Q(pk__in=accounts.values("asset_id")) | Q(pk__in=settings_of)).order_by("pk")
    is_new = rolling_reserve.is_on_probation(provider_id)
    return [_of_asset(provider_id, asset, settings_of.get(asset.pk), is_new=is_new) for asset in assets]


def _of_asset(provider_id: UUID, asset: Asset, row: PayoutSettings | None, *, is_new: bool) -> Accrual:
    sums = {
        kind: balance(provider_id, kind, asset_id=asset.pk)
        for kind in (AccountKind.PROVIDER_PENDING, AccountKind.PROVIDER_AVAILABLE, AccountKind.PROVIDER_RESERVE)
    }
    under_way = Payout.objects.filter(provider_id=provider_id, asset=asset, state__in=PAYOUT_STATES_OPEN)
    release = rolling_reserve.next_release(provider_id, asset_id=asset.pk)
    return Accrual(
        asset=asset,
        pending=sums[AccountKind.PROVIDER_PENDING],
        available=sums[AccountKind.PROVIDER_AVAILABLE],
        reserve=sums[AccountKind.PROVIDER_RESERVE],
        on_its_way=int(under_way.aggregate(total=Sum("amount"))["total"] or 0),
        next_payout_at=row.due_at if row else None,
        next_payout=_estimate(row, sums[AccountKind.PROVIDER_AVAILABLE], is_new=is_new) if row else 0,
        next_release_at=release[0] if release else None,
        next_release=release[1] if release else 0,
        is_on_probation=is_new,
        last_error=row.last_error if row else "",
    )


def _estimate(row: PayoutSettings, available: int, *, is_new: bool) -> int:
    """What would be paid at the next date, if nothing else were earned until then."""
    if row.due_at is None:
        ripening = 0
    else:
        shares = SettlementShare.objects.ripe(row.due_at).filter(
            provider_id=row.provider_id, settlement__asset_id=row.asset_id
        )
        ripening = int(shares.aggregate(total=Sum("paid"))["total"] or 0)
    if is_new:
        unseen = SettlementShare.objects.filter(
            provider_id=row.provider_id,
            settlement__asset_id=row.asset_id,
            released_at__gt=clock.now() - timedelta(days=settings.SOUK_RESERVE_DAYS),
            reserve_slice=None,
        )
        released = min(int(unseen.aggregate(total=Sum("paid"))["total"] or 0), available)
        available -= _kept_back(released)
        ripening -= _kept_back(ripening)
    moves = row.next_from is not None and row.due_at is not None and row.next_from <= row.due_at
    unit = registry.row_of(row.next_rail if moves else row.rail).unit
    estimate = max(available + ripening, 0) // unit * unit
    return estimate if estimate >= max(row.minimum, 1) else 0


def _kept_back(units: int) -> int:
    """The part of a new provider's pay that goes into the reserve; rounded down, as rolling_reserve.py does."""
    return units * settings.SOUK_RESERVE_BPS // BPS_WHOLE
