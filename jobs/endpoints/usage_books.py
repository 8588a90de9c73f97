"""The tables of use, written for hundreds of rows in one statement each. In the caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection

from jobs.endpoints.key_grants import month_of
from jobs.gateway.messages import UsageRow
from marketplace.foundation import clock

MILLISECONDS_MAX: Final = 86_400_000  # of one request's times: a clock may have jumped: longer times are cut
MODEL_CHARACTERS_MAX: Final = 200

_RECORD_COLUMNS: Final = {
    "seq": "bigint",
    "request_id": "uuid",
    "part": "int",
    "key_id": "uuid",
    "organisation_id": "uuid",
    "owner_id": "uuid",
    "endpoint_id": "uuid",
    "version": "int",
    "lease_id": "uuid",
    "model": "text",
    "kind": "text",
    "status": "text",
    "input_tokens": "bigint",
    "cached_tokens": "bigint",
    "output_tokens": "bigint",
    "cost_usd_micros": "bigint",
    "queue_ms": "bigint",
    "first_token_ms": "bigint",
    "total_ms": "bigint",
    "at": "timestamptz",
}
_NAMES: Final = ", ".join(f'"{name}"' for name in _RECORD_COLUMNS)
_ARRAYS: Final = ", ".join(f"%s::{kind}[]" for kind in _RECORD_COLUMNS.values())
# In the order of the requests: two who write the same ones never wait for each other in a circle.
_INSERT: Final = f"""
    INSERT INTO jobs_usagerecord ({_NAMES}, gateway_id, received_at)
    SELECT {_NAMES}, %s, %s FROM unnest({_ARRAYS}) AS new ({_NAMES}) ORDER BY request_id, part
    ON CONFLICT DO NOTHING RETURNING seq
"""  # noqa: S608 - constants of this file
_COSTS: Final = """
    UPDATE jobs_usagerecord r SET cost_usd_micros = new.cost
    FROM unnest(%s::bigint[], %s::bigint[]) AS new (seq, cost) WHERE r.gateway_id = %s AND r.seq = new.seq
"""
_SUMS: Final = ("requests", "failed", "input_tokens", "cached_tokens", "output_tokens", "cost_usd_micros")
_DAY_NAMES: Final = ("day", "key_id", "organisation_id", "owner_id", "endpoint_id", "model", *_SUMS)
_DAYS: Final = f"""
    INSERT INTO jobs_usageday AS old ({", ".join(_DAY_NAMES)})
    SELECT * FROM unnest(%s::date[], %s::uuid[], %s::uuid[], %s::uuid[], %s::uuid[], %s::text[],
                         %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (day, key_id, endpoint_id, model) DO UPDATE
    SET {", ".join(f"{name} = old.{name} + excluded.{name}" for name in _SUMS)}
"""  # noqa: S608
_LEASE_SUMS: Final = (
    "requests",
    "input_tokens",
    "output_tokens",
    "unreported_input_tokens",
    "unreported_output_tokens",
)
_LEASES: Final = f"""
    INSERT INTO jobs_leaseuse AS old (lease_id, {", ".join(_LEASE_SUMS)}, counted_at)
    SELECT new.*, %s::timestamptz FROM unnest(%s::uuid[], {", ".join(["%s::bigint[]"] * len(_LEASE_SUMS))}) AS new
    ON CONFLICT (lease_id) DO UPDATE
    SET {", ".join(f"{name} = old.{name} + excluded.{name}" for name in _LEASE_SUMS)}, counted_at = excluded.counted_at
"""  # noqa: S608
_SPENT: Final = """
    UPDATE jobs_endpointkey k SET spent_usd_micros = k.spent_usd_micros + new.cost, last_used_at = %(now)s,
        spent_month_usd_micros = new.cost
            + CASE WHEN k.spent_month = %(month)s::date THEN k.spent_month_usd_micros ELSE 0 END,
        spent_month = %(month)s::date
    FROM unnest(%(ids)s::uuid[], %(costs)s::bigint[]) AS new (id, cost) WHERE k.id = new.id
"""


@dataclass(frozen=True)
class Booked:
    """One row with what only the database knows."""

    row: UsageRow
    owner_id: UUID
    picos: int  # exactly what it costs
    at: datetime
    cost_usd_micros: int = 0  # with what was carried on: see remainders.py


def insert_records(gateway_id: UUID, booked: Sequence[Booked]) -> set[int]:
    """Insert records; the numbers of those that were new. A part of a request is inserted once, whoever sends it."""
    if not booked:
        return set()
    columns: list[list[Any]] = [[] for _ in _RECORD_COLUMNS]
    for each in booked:
        for column, value in zip(columns, _values(each), strict=True):
            column.append(value)
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [gateway_id, clock.now(), *columns])
        return {seq for (seq,) in cursor.fetchall()}


def write_costs(gateway_id: UUID, counted: Sequence[Booked]) -> None:
    """The costs of records that were inserted: what a row costs is known once it is known to be counted."""
    costs = [(each.row.seq, each.cost_usd_micros) for each in counted if each.cost_usd_micros]
    if costs:
        with connection.cursor() as cursor:
            cursor.execute(_COSTS, [*(list(column) for column in zip(*costs, strict=True)), gateway_id])


def add_days(counted: Sequence[Booked]) -> None:
    """Add them to the sums of their days."""
    sums: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(_SUMS))
    for each in counted:
        row = each.row
        key = (each.at.date(), row.key_id, row.organisation_id, each.owner_id, row.endpoint_id, _model(each))
        is_failed = row.status not in {"ok", "cancelled"}
        figures = (
            row.part == 0,
            is_failed,
            row.input_tokens,
            row.cached_tokens,
            row.output_tokens,
            each.cost_usd_micros,
        )
        sums[key] = [before + int(more) for before, more in zip(sums[key], figures, strict=True)]
    if not sums:
        return
    lines = [(*key, *figures) for key, figures in sorted(sums.items(), key=lambda item: tuple(map(str, item[0])))]
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, [list(column) for column in zip(*lines, strict=True)])


def add_leases(counted: Sequence[Booked]) -> None:
    """Add them to what their leases answered, in the leases' order: two gateways never wait in a circle."""
    sums: defaultdict[UUID, list[int]] = defaultdict(lambda: [0] * len(_LEASE_SUMS))
    for each in counted:
        if each.row.lease_id is not None:
            read, written = each.row.input_tokens, each.row.output_tokens
            figures = (1, read, written, *((0, 0) if each.row.is_reported else (read, written)))
            before = sums[each.row.lease_id]
            sums[each.row.lease_id] = [old + more for old, more in zip(before, figures, strict=True)]
    if not sums:
        return
    lines = [(lease_id, *figures) for lease_id, figures in sorted(sums.items())]
    with connection.cursor() as cursor:
        cursor.execute(_LEASES, [clock.now(), *(list(column) for column in zip(*lines, strict=True))])


def add_spent(counted: Sequence[Booked]) -> None:
    """Count them against their keys' budgets; the caller holds the keys' locks."""
    costs: defaultdict[UUID, int] = defaultdict(int)
    for each in counted:
        costs[each.row.key_id] += each.cost_usd_micros
    if not costs:
        return
    now = clock.now()
    parameters: dict[str, Any] = {"now": now, "month": month_of(now), "ids": list(costs), "costs": list(costs.values())}
    with connection.cursor() as cursor:
        cursor.execute(_SPENT, parameters)


def _values(each: Booked) -> tuple[Any, ...]:
    row = each.row
    return (
        row.seq,
        row.request_id,
        row.part,
        row.key_id,
        row.organisation_id,
        each.owner_id,
        row.endpoint_id,
        row.version,
        row.lease_id,
        _model(each),
        row.kind,
        row.status,
        row.input_tokens,
        row.cached_tokens,
        row.output_tokens,
        each.cost_usd_micros,
        _cut(row.queue_ms),
        None if row.first_token_ms is None else _cut(row.first_token_ms),
        _cut(row.total_ms),
        each.at,
    )


def _model(each: Booked) -> str:
    return each.row.model[:MODEL_CHARACTERS_MAX].replace("\0", "")


def _cut(milliseconds: int) -> int:
    return max(0, min(milliseconds, MILLISECONDS_MAX))
