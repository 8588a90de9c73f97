"""Load of endpoints and replicas by minute: added up from syncs and ticks, read by the deciders, then deleted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, Sum
from django.db.models.functions import Greatest

from jobs.models import Endpoint, EndpointMinute, EndpointVersion, Replica, ReplicaMinute
from jobs.scaling.autoscaling import minutes_needed
from jobs.scaling.forecast import Minute, ranges
from marketplace.foundation import clock

KEPT_DAYS: Final = 15  # a season looks 14 days back
REPLICA_DAYS: Final = 2  # a rollout is over by then
SAMPLE_MINUTES: Final = 10
FORGET_MAX: Final = 20_000  # rows at a time

_ADD_ENDPOINTS: Final = """
INSERT INTO jobs_endpointminute
    (endpoint_id, minute, ticks, load_sum, in_flight_sum, arrived, served, failed, need_max, desired)
SELECT e.id, m.minute, 0, 0, 0, m.arrived, m.served, m.failed, 0, 0
FROM unnest(%s::uuid[], %s::bigint[], %s::int[], %s::int[], %s::int[])
    AS m(endpoint_id, minute, arrived, served, failed)
JOIN jobs_endpoint e ON e.id = m.endpoint_id
ON CONFLICT (endpoint_id, minute) DO UPDATE SET
    arrived = jobs_endpointminute.arrived + excluded.arrived,
    served = jobs_endpointminute.served + excluded.served,
    failed = jobs_endpointminute.failed + excluded.failed
"""
_ADD_REPLICAS: Final = """
INSERT INTO jobs_replicaminute
    (replica_id, minute, served, failed, output_tokens, timed, log_ms_sum, log_ms_squares, speeds, speed_sum)
SELECT * FROM unnest(
    %s::uuid[], %s::bigint[], %s::int[], %s::int[], %s::bigint[],
    %s::int[], %s::float[], %s::float[], %s::int[], %s::float[]
)
ON CONFLICT (replica_id, minute) DO UPDATE SET
    served = jobs_replicaminute.served + excluded.served,
    failed = jobs_replicaminute.failed + excluded.failed,
    output_tokens = jobs_replicaminute.output_tokens + excluded.output_tokens,
    timed = jobs_replicaminute.timed + excluded.timed,
    log_ms_sum = jobs_replicaminute.log_ms_sum + excluded.log_ms_sum,
    log_ms_squares = jobs_replicaminute.log_ms_squares + excluded.log_ms_squares,
    speeds = jobs_replicaminute.speeds + excluded.speeds,
    speed_sum = jobs_replicaminute.speed_sum + excluded.speed_sum
"""


def minute_of(moment: datetime) -> int:
    """Unix time / 60."""
    return int(moment.timestamp()) // 60


def add_requests(counts: Mapping[UUID, tuple[int, int, int]]) -> None:
    """Requests that arrived, were served, failed since the last sync, by endpoint; unknown ones are left out."""
    if not counts:
        return
    minute = minute_of(clock.now())
    counts = dict(sorted(counts.items()))  # in one order: two gateways never wait for each other in a circle
    rows = list(counts.values())
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD_ENDPOINTS,
            [
                list(counts),
                [minute] * len(rows),
                [row[0] for row in rows],
                [row[1] for row in rows],
                [row[2] for row in rows],
            ],
        )


def add_samples(loads: Mapping[UUID, Mapping[str, Any]]) -> None:
    """What replicas did since a gateway's last sync, by replica."""
    busy = {pk: load for pk, load in loads.items() if load.get("served") or load.get("failed")}
    if not busy:
        return
    minute, columns = minute_of(clock.now()), [list[Any]() for _ in range(10)]
    for pk, load in sorted(busy.items()):  # in one order: two gateways never wait for each other in a circle
        served, first = int(load.get("served") or 0), load.get("first_token_ms_p50")
        timed = int(bool(first))  # one measurement: counted by its answers, chance would look like proof
        log_ms = math.log(max(float(first), 0.1)) if first else 0.0
        speed = float(load.get("tokens_per_second") or 0)
        row = (pk, minute, served, int(load.get("failed") or 0), int(load.get("output_tokens") or 0), timed)
        for column, value in zip(
            columns, (*row, timed * log_ms, timed * log_ms**2, int(speed > 0), speed), strict=True
        ):
            column.append(value)
    with connection.cursor() as cursor:
        cursor.execute(_ADD_REPLICAS, columns)


def add_tick(endpoint: Endpoint, *, load: float, in_flight: int, need: int, desired: int) -> None:
    """One look at an endpoint."""
    minute = minute_of(clock.now())
    changed = EndpointMinute.objects.filter(endpoint=endpoint, minute=minute).update(
        ticks=F("ticks") + 1,
        load_sum=F("load_sum") + load,
        in_flight_sum=F("in_flight_sum") + in_flight,
        need_max=Greatest(F("need_max"), need),
        desired=desired,
    )
    if not changed:
        EndpointMinute.objects.bulk_create(
            [
                EndpointMinute(
                    endpoint=endpoint,
                    minute=minute,
                    ticks=1,
                    load_sum=load,
                    in_flight_sum=in_flight,
                    need_max=need,
                    desired=desired,
                )
            ],
            ignore_conflicts=True,  # a gateway's sync made the row meanwhile: one tick of about thirty is not counted
        )


def read_minutes(endpoint: Endpoint, now: datetime, *, horizon_minutes: int) -> list[Minute]:
    """The last minutes, and those of the days before that a forecast looks at; oldest first."""
    present = minute_of(now)
    wanted = Q(minute__range=(present - minutes_needed(), present))
    for first, last in ranges(present, horizon_minutes):
        wanted |= Q(minute__range=(first, last))
    rows = EndpointMinute.objects.filter(wanted, endpoint=endpoint).order_by("minute")
    fields = ("minute", "ticks", "load_sum", "in_flight_sum", "arrived", "served", "need_max", "desired")
    return [Minute(*row) for row in rows.values_list(*fields)]


def read_samples(replicas: Iterable[Replica], now: datetime) -> dict[UUID, dict[str, float]]:
    """Sums of the last minutes, by replica."""
    return _sums(Q(replica__in=list(replicas), minute__gt=minute_of(now) - SAMPLE_MINUTES), "replica_id")


def read_versions(versions: Iterable[EndpointVersion], since: datetime) -> dict[UUID, dict[str, float]]:
    """Sums since the newest version was deployed, by version: only what came side by side is compared."""
    wanted = Q(replica__version__in=list(versions), minute__gte=minute_of(since))
    return _sums(wanted, "replica__version_id")


def forget() -> int:
    """Delete what nobody looks at any more; returns how many rows."""
    present = minute_of(clock.now())
    count = 0
    for model, days in ((EndpointMinute, KEPT_DAYS), (ReplicaMinute, REPLICA_DAYS)):
        old = model._default_manager.filter(minute__lt=present - days * 1440).values_list("pk", flat=True)[:FORGET_MAX]
        count += model._default_manager.filter(pk__in=list(old)).delete()[0]
    return count


def _sums(wanted: Q, key: str) -> dict[UUID, dict[str, float]]:
    names = ("served", "failed", "output_tokens", "timed", "log_ms_sum", "log_ms_squares", "speeds", "speed_sum")
    rows = ReplicaMinute.objects.filter(wanted).values(key).annotate(**{f"all_{name}": Sum(name) for name in names})
    return {row[key]: {name: float(row[f"all_{name}"] or 0) for name in names} for row in rows.order_by()}
