"""What nodes have earned: the provider's part of what their leases cost, by the same figures that the bills show.

earned_by        one node's (`earned_by_each`: several), in dollars at the prices of its jobs' quotes
list_earnings    a provider's leases one by one, with receipts and shares: what it can verify
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import BigIntegerField, Count, F, Sum, Value
from django.db.models.functions import Cast

from billing.chain.contract import periods
from billing.charging.fees import split_fee
from billing.models import EscrowLease, SettlementShare, UsageReceipt
from billing.money import BPS_WHOLE
from jobs.bills.bill import line_of, receipts_of, show_price
from jobs.errors import ExportTooLarge
from jobs.escrow.views import settled_leases, settled_of, show_lease
from jobs.leases.leasing import is_paid_by_contract
from jobs.models import Lease
from jobs.models.querysets import LeaseQuerySet
from jobs.pricing.costs import NO_CLAIM, Claim, cost_of, newest_claims
from jobs.pricing.price_locks import payment_of
from jobs.states import LeaseState
from jobs.wire import EarningsLine, EarningsView
from marketplace.foundation import clock
from marketplace.foundation.errors import BadRequest
from marketplace.nodes.errors import NoProvider
from marketplace.nodes.models import Node, Provider
from provider_agent.protocol import Earnings, SignedReceipt

DAYS = 7
SPAN_DAYS: Final = 30
EXPORT_LEASES_MAX: Final = 2000
EXPORT_RECEIPTS_MAX: Final = 100_000  # in one file; verifying them takes about half a minute


def earned_by(node: Node) -> Earnings:
    """Today, in the last seven days, and open; each lease's fee is rounded down as the settlement does."""
    return earned_by_each([node])[node.pk]


def earned_by_each(nodes: Collection[Node]) -> dict[UUID, Earnings]:
    """The same of several nodes, by their ids, in as many queries as of one."""
    today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    ended = Lease.objects.filter(node__in=nodes, state=LeaseState.ENDED)
    of_today = _paid(ended.filter(ended_at__gte=today))
    of_week = _paid(ended.filter(ended_at__gte=today - timedelta(days=DAYS - 1)))
    live: defaultdict[UUID, list[Lease]] = defaultdict(list)
    for lease in Lease.objects.live().filter(node__in=nodes):
        live[lease.node_id].append(lease)
    claims = newest_claims([lease.id for of_node in live.values() for lease in of_node])
    return {
        node.pk: Earnings(
            today_usd_micros=of_today[node.pk].usd_micros,
            week_usd_micros=of_week[node.pk].usd_micros,
            open_usd_micros=_open(live[node.pk], claims),
            today_leases=of_today[node.pk].leases,
            week_leases=of_week[node.pk].leases,
            open_leases=len(live[node.pk]),
            fee_bps=settings.SOUK_FEE_BPS,
        )
        for node in nodes
    }


def list_earnings(organisation_id: UUID, *, since: datetime | None, until: datetime) -> EarningsView:
    """A provider's own leases that ended from `since` (SPAN_DAYS before, if None) until before `until`.

    Raises NoProvider, BadRequest, ExportTooLarge.
    """
    provider = Provider.objects.filter(organisation=organisation_id).first()
    if provider is None:
        raise NoProvider()
    since = since or until - timedelta(days=SPAN_DAYS)
    if since >= until:
        raise BadRequest("?since= has to lie before ?until=.")
    leases = list(
        Lease.objects.filter(node__provider=provider, ended_at__gte=since, ended_at__lt=until)
        .select_related("attempt__job__quote__asset", "node", "asset", "price_lock")
        .order_by("ended_at", "pk")[: EXPORT_LEASES_MAX + 1]
    )
    ids = [lease.id for lease in leases]
    count = UsageReceipt.objects.filter(lease_id__in=ids).count()
    if len(leases) > EXPORT_LEASES_MAX or count > EXPORT_RECEIPTS_MAX:
        raise ExportTooLarge(receipts_max=EXPORT_RECEIPTS_MAX, leases_max=EXPORT_LEASES_MAX)
    receipts = receipts_of(ids)
    shares = _shares_of(ids)
    on_chain = settled_leases(ids)
    lines = [
        _paid_by_contract(lease, receipts[lease.id], on_chain.get(lease.id))
        if is_paid_by_contract(lease)
        else _earned(lease, receipts[lease.id], shares[lease.id])
        for lease in leases
    ]
    paid: dict[str, int] = {}
    for line in lines:
        paid[line.asset] = paid.get(line.asset, 0) + line.paid_units
    return EarningsView(provider_id=provider.id, since=since, until=until, lines=lines, paid_units=paid)


def _shares_of(lease_ids: Collection[UUID]) -> defaultdict[UUID, list[SettlementShare]]:
    """The shares of each lease, the newest last: of a job that was settled in parts there are several."""
    found: defaultdict[UUID, list[SettlementShare]] = defaultdict(list)
    rows = SettlementShare.objects.filter(lease_id__in=lease_ids).select_related("settlement")
    for share in rows.order_by("settlement__created_at", "pk"):
        found[share.lease_id].append(share)
    return found


def _earned(lease: Lease, receipts: list[SignedReceipt], shares: Sequence[SettlementShare]) -> EarningsLine:
    newest = shares[-1] if sum(int(share.charged) for share in shares) == (lease.charge_units or 0) and shares else None
    return EarningsLine(
        **line_of(lease, receipts),
        job_id=lease.attempt.job_id,
        asset=lease.asset.code,
        asset_scale=lease.asset.scale,
        price=show_price(payment_of(lease)),
        ended_at=lease.ended_at,
        fee_bps=newest.settlement.fee_bps if newest else None,
        fee_units=sum(int(share.fee) for share in shares) if newest else 0,
        paid_units=sum(int(share.paid) for share in shares) if newest else 0,
        available_from=max(share.challenge_until for share in shares) if newest else None,  # all of it
    )


def _paid_by_contract(lease: Lease, receipts: list[SignedReceipt], settled: EscrowLease | None) -> EarningsLine:
    """By the contract's events. While it waits the provider's part is what the contract will release; contested money
    is nobody's, and what was divided stands in `escrow` alone.
    """
    line = _earned(lease, receipts, ())
    if settled is None:
        return line
    updates: dict[str, Any] = {"escrow": show_lease(settled), "available_from": settled.release_at}
    terms = periods.terms_of(lease.asset_id)
    is_whole = settled_of(settled) == line.charge_units and not settled.refunded and not settled.is_challenged
    if terms and is_whole:
        fee, paid = split_fee(line.charge_units, terms.fee_bps)
        updates |= {"fee_bps": terms.fee_bps, "fee_units": fee, "paid_units": paid}
    return line.model_copy(update=updates)


class _Paid(NamedTuple):
    usd_micros: int = 0  # after the fee
    leases: int = 0


def _paid(leases: LeaseQuerySet) -> defaultdict[UUID, _Paid]:
    """By node, added up in the database, however many leases they are."""
    charge = Cast(F("charge_usd_micros"), BigIntegerField())
    fee = charge * Value(settings.SOUK_FEE_BPS) / Value(BPS_WHOLE)  # whole numbers: rounded down
    found: defaultdict[UUID, _Paid] = defaultdict(_Paid)
    for row in leases.order_by().values("node").annotate(paid=Sum(charge - fee), count=Count("pk")):
        found[row["node"]] = _Paid(int(row["paid"] or 0), int(row["count"]))
    return found


def _open(live: Collection[Lease], claims: Mapping[UUID, Claim]) -> int:
    costs = [cost_of(lease, claims.get(lease.id, NO_CLAIM)).charge_usd_micros for lease in live]
    return sum(split_fee(cost, settings.SOUK_FEE_BPS)[1] for cost in costs)
