"""What a node has earned: the provider's part of what its leases cost, by the same figures that the bills show."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.conf import settings
from django.db.models import BigIntegerField, Count, F, Sum, Value
from django.db.models.functions import Cast

from billing.money import BPS_WHOLE, split_fee
from jobs.costs import NO_CLAIM, cost_of, newest_claims
from jobs.models import Lease
from jobs.querysets import LeaseQuerySet
from jobs.states import LeaseState
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import Earnings

DAYS = 7


def earned_by(node: Node) -> Earnings:
    """Today, in the last seven days, and open; each lease's fee is rounded down as the settlement does."""
    today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    ended = Lease.objects.filter(node=node, state=LeaseState.ENDED)
    today_usd_micros, today_leases = _paid(ended.filter(ended_at__gte=today))
    week_usd_micros, week_leases = _paid(ended.filter(ended_at__gte=today - timedelta(days=DAYS - 1)))
    live = list(Lease.objects.live().filter(node=node))
    return Earnings(
        today_usd_micros=today_usd_micros,
        week_usd_micros=week_usd_micros,
        open_usd_micros=_open(live),
        today_leases=today_leases,
        week_leases=week_leases,
        open_leases=len(live),
        fee_bps=settings.SOUK_FEE_BPS,
    )


def _paid(leases: LeaseQuerySet) -> tuple[int, int]:
    """Micro-USD after the fee, and how many leases: in the database, however many they are."""
    charge = Cast(F("charge_usd_micros"), BigIntegerField())
    fee = charge * Value(settings.SOUK_FEE_BPS) / Value(BPS_WHOLE)  # whole numbers: rounded down
    found = leases.aggregate(paid=Sum(charge - fee), count=Count("pk"))
    return int(found["paid"] or 0), int(found["count"])


def _open(live: Collection[Lease]) -> int:
    claims = newest_claims([lease.id for lease in live])
    costs = [cost_of(lease, claims.get(lease.id, NO_CLAIM)).charge_usd_micros for lease in live]
    return sum(split_fee(cost, settings.SOUK_FEE_BPS)[1] for cost in costs)
