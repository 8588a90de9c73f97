"""Use as people see it: sums by day, key, model or endpoint, of what they called or of what others called."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import F, QuerySet, Sum

from jobs.endpoints.key_grants import spent_of
from jobs.models import Endpoint, EndpointKey, UsageDay, UsagePayment, UsageRecord
from jobs.wire.usage import EndpointKeyView, UsageLine, UsageQuery, UsageView
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.errors import BadRequest

DAYS: Final = 30  # where a query has no start
DAYS_MAX: Final = 400
LINES_MAX: Final = 1_000

_FIELDS: Final = {"day": "day", "key": "key_id", "model": "model", "endpoint": "endpoint_id"}
_SUMS: Final = ("requests", "failed", "input_tokens", "cached_tokens", "output_tokens", "cost_usd_micros")


def show_keys(keys: Iterable[EndpointKey]) -> list[EndpointKeyView]:
    """Keys as the API has them."""
    return [show_key(key) for key in keys]


def show_key(key: EndpointKey) -> EndpointKeyView:
    """One key without its text."""
    names = set(EndpointKeyView.model_fields) - {"spent_usd_micros"}
    fields: dict[str, Any] = {name: getattr(key, name) for name in names}
    return EndpointKeyView(**fields, spent_usd_micros=spent_of(key, clock.now()))


def show_usage(organisation: Organisation, query: UsageQuery) -> UsageView:
    """Sums that add up to the total. Raises BadRequest."""
    until = query.until or clock.now().date()
    since = query.since or until - timedelta(days=DAYS - 1)
    if not 0 <= (until - since).days < DAYS_MAX:
        raise BadRequest(f"?from= must not lie after ?to=, and they may span {DAYS_MAX} days at most.")
    if query.side == "owner" and query.group == "key":
        raise BadRequest("The keys are the callers' own. Use ?group=day, model or endpoint.")
    mine = {"organisation_id": organisation.pk} if query.side == "caller" else {"owner_id": organisation.pk}
    rows = UsageDay.objects.filter(day__gte=since, day__lte=until, **mine)
    if query.side == "owner":
        rows = rows.exclude(organisation_id=organisation.pk)
    lines = _lines(rows, query.group)
    return UsageView(
        since=since,
        until=until,
        group=query.group,
        side=query.side,
        lines=lines[:LINES_MAX],
        is_complete=len(lines) <= LINES_MAX,
        total=UsageLine(group="", name="total", **_numbers(rows.aggregate(**_aggregates()))),
        paid_usd_micros=_paid(organisation.pk, query.side, since, until),
        due_usd_micros=_due(organisation.pk, query.side),
    )


def _lines(rows: QuerySet[UsageDay], group: str) -> list[UsageLine]:
    field = _FIELDS[group]
    order = field if group in {"day", "model"} else "-sum_cost_usd_micros"
    found = list(rows.values(field).annotate(**_aggregates()).order_by(order, field)[: LINES_MAX + 1])
    names = _names(group, [each[field] for each in found])
    return [
        UsageLine(group=str(each[field]), name=names.get(each[field], str(each[field])), **_numbers(each))
        for each in found
    ]


def _aggregates() -> dict[str, Sum]:
    return {f"sum_{name}": Sum(name) for name in _SUMS}


def _numbers(sums: dict[str, Any]) -> dict[str, int]:
    return {name: int(sums[f"sum_{name}"] or 0) for name in _SUMS}


def _names(group: str, ids: list[Any]) -> dict[Any, str]:
    if group == "key":
        return {key.pk: f"{key.name} ({key.prefix})" for key in EndpointKey.objects.filter(pk__in=ids)}
    return dict(Endpoint.objects.filter(pk__in=ids).values_list("pk", "model")) if group == "endpoint" else {}


def _paid(organisation_id: UUID, side: str, since: date, until: date) -> int:
    start = datetime.combine(since, time(tzinfo=UTC))
    end = datetime.combine(until + timedelta(days=1), time(tzinfo=UTC))
    payments = UsagePayment.objects.filter(created_at__gte=start, created_at__lt=end)
    if side == "caller":
        return int(payments.filter(payer_id=organisation_id).aggregate(sum=Sum("charged_usd_micros"))["sum"] or 0)
    return int(payments.filter(owner_id=organisation_id).aggregate(sum=Sum("paid_usd_micros"))["sum"] or 0)


def _due(organisation_id: UUID, side: str) -> int:
    mine = {"organisation_id": organisation_id} if side == "caller" else {"owner_id": organisation_id}
    rows = UsageRecord.objects.filter(payment=None, cost_usd_micros__gt=0, **mine).exclude(
        organisation_id=F("owner_id")
    )
    return int(rows.aggregate(sum=Sum("cost_usd_micros"))["sum"] or 0)
