"""What gateways counted, taken into the books: once each, priced by the endpoint, added up by day.

    ingest_usage   a gateway's numbered rows, in one transaction with the number up to which they are in

A row is believed in what was used, and not in what it costs: no row costs more than the price of the endpoint's version
that answered it makes of its tokens. Costs are exact, and what is below a micro-dollar is carried on to the key's next
request (`remainders.py`). What cannot be booked (a key or an endpoint that nobody knows) is set aside with
the reason. Payment for others' endpoints is `token_payments.py`; what people see of it is `usage_views.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from billing.notices import alerts
from jobs.endpoints.remainders import carry
from jobs.endpoints.usage_books import Booked, add_days, add_leases, add_spent, insert_records, write_costs
from jobs.gateway.messages import USAGE_ROWS_MAX, UsageRow
from jobs.models import Endpoint, EndpointKey, EndpointVersion, Gateway, UsageAside
from jobs.models.usage import PICOS_PER_MICRO
from marketplace.foundation import clock

TOKENS_MAX: Final = 1 << 24  # in one row: more than any context holds
AHEAD_MAX: Final = timedelta(minutes=5)  # of our clock
BEHIND_MAX: Final = timedelta(days=40)  # how long a gateway may have kept it
MICROS_PER_DOLLAR: Final = 1_000_000
UNPAID_STATUSES: Final = frozenset({"failed", "refused"})  # nobody got an answer
GAP_ALERT: Final = "gateway_usage_gap"
ASIDE_ALERT: Final = "gateway_usage_aside"


def ingest_usage(gateway_id: UUID, rows: Sequence[UsageRow]) -> int:
    """Book what follows without a gap on what is in already; the number up to which all of it is in the database.

    Repeats, other orders and pieces of it change nothing: the caller sends again from that number on.
    """
    if not rows:
        found = Gateway.objects.filter(pk=gateway_id).values_list("usage_seq", flat=True).first()
        return int(found or 0)
    with transaction.atomic():
        # 1. One batch of a gateway at a time.
        gateway = Gateway.objects.select_for_update().get(pk=gateway_id)
        fresh = _following(gateway.usage_seq, rows)
        _alert_gap(gateway, rows, fresh)
        if not fresh:
            return gateway.usage_seq
        # 2. Whose each is, and what it costs.
        booked, aside = _sort(fresh)
        # 3. The books. What a record of the same part of the same request was written for before is not counted again.
        written = insert_records(gateway_id, booked)
        aside += [(each.row, "counted_before") for each in booked if each.row.seq not in written]
        counted = carry([each for each in booked if each.row.seq in written])
        write_costs(gateway_id, counted)
        add_days(counted)
        add_leases(counted)
        add_spent(counted)
        _set_aside(gateway_id, aside)
        gateway.usage_seq = fresh[-1].seq
        gateway.save(update_fields=["usage_seq"])
        return gateway.usage_seq


def picos_of(row: UsageRow, input_price: int, output_price: int) -> int:
    """Pico-USD: exactly the endpoint's price of the tokens; less where the gateway reports a lower cost."""
    if row.status in UNPAID_STATUSES:
        return 0
    reported = row.cost_usd_picos
    if reported is None:  # an older gateway's, which rounds down
        reported = (row.cost_usd_micros + 1) * PICOS_PER_MICRO - 1
    return min(row.input_tokens * input_price + row.output_tokens * output_price, reported)


def _following(usage_seq: int, rows: Sequence[UsageRow]) -> list[UsageRow]:
    by_seq = {row.seq: row for row in rows[:USAGE_ROWS_MAX]}
    fresh: list[UsageRow] = []
    for seq in range(usage_seq + 1, usage_seq + 1 + len(by_seq)):
        if seq not in by_seq:
            break
        fresh.append(by_seq[seq])
    return fresh


def _alert_gap(gateway: Gateway, rows: Sequence[UsageRow], fresh: Sequence[UsageRow]) -> None:
    """Rows that are never sent keep all behind them out: somebody has to look at that gateway's spool."""
    key = f"{GAP_ALERT}/{gateway.pk}"
    if fresh:
        alerts.close(key)
    elif min(row.seq for row in rows) > gateway.usage_seq + 1:
        message = f"Gateway {gateway.pk} sends use from {min(row.seq for row in rows)} on; {gateway.usage_seq} is in."
        alerts.raise_once(key, kind=GAP_ALERT, subject=gateway.pk, message=message)


def _sort(rows: Sequence[UsageRow]) -> tuple[list[Booked], list[tuple[UsageRow, str]]]:
    """What can be booked, and what cannot with the reason. The keys are locked, in one order for all gateways."""
    now = clock.now()
    wanted = EndpointKey.objects.filter(pk__in={row.key_id for row in rows}).order_by("pk").select_for_update()
    keys = dict(wanted.values_list("pk", "organisation_id"))
    endpoint_ids = {row.endpoint_id for row in rows}
    owners = dict(Endpoint.objects.filter(pk__in=endpoint_ids).values_list("pk", "organisation_id"))
    prices = _prices(endpoint_ids)
    booked, aside = [], []
    for row in rows:
        price = prices.get((row.endpoint_id, row.version))
        if row.key_id not in keys:
            aside.append((row, "unknown_key"))
        elif keys[row.key_id] != row.organisation_id:
            aside.append((row, "key_of_another"))
        elif row.endpoint_id not in owners or price is None:
            aside.append((row, "unknown_endpoint"))
        elif max(row.input_tokens, row.cached_tokens, row.output_tokens) > TOKENS_MAX:
            aside.append((row, "implausible"))
        else:
            booked.append(Booked(row, owners[row.endpoint_id], picos_of(row, *price), _moment(row.at_ms, now)))
    return booked, aside


def _prices(endpoint_ids: set[UUID]) -> dict[tuple[UUID, int], tuple[int, int]]:
    """(endpoint, version) -> micro-USD for a million tokens read, and written."""
    versions = EndpointVersion.objects.filter(endpoint_id__in=endpoint_ids)
    found = versions.values_list("endpoint_id", "number", "spec__serve__prices")
    return {(endpoint_id, number): prices_of(prices) for endpoint_id, number, prices in found}


def prices_of(prices: Mapping[str, Any] | None) -> tuple[int, int]:
    """Of a canonical spec's `serve.prices`: micro-USD for a million tokens read, and written."""
    read, written = ((prices or {}).get(name) or "0" for name in ("input_per_million", "output_per_million"))
    return int(Decimal(read) * MICROS_PER_DOLLAR), int(Decimal(written) * MICROS_PER_DOLLAR)


def _moment(at_ms: int, now: datetime) -> datetime:
    """When it was; now, where the gateway's clock cannot be right."""
    earliest, latest = (int(each.timestamp() * 1000) for each in (now - BEHIND_MAX, now + AHEAD_MAX))
    return datetime.fromtimestamp(at_ms / 1000, UTC) if earliest <= at_ms <= latest else now


def _set_aside(gateway_id: UUID, aside: Sequence[tuple[UsageRow, str]]) -> None:
    if not aside:
        return
    now = clock.now()
    UsageAside.objects.bulk_create(
        [
            UsageAside(gateway_id=gateway_id, seq=row.seq, why=why, row=row.model_dump(mode="json"), received_at=now)
            for row, why in aside
        ],
        ignore_conflicts=True,
    )
    message = f"{len(aside)} requests counted by gateway {gateway_id} could not be booked: {aside[0][1]}, and such."
    alerts.raise_once(f"{ASIDE_ALERT}/{gateway_id}", kind=ASIDE_ALERT, subject=gateway_id, message=message)
