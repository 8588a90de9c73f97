"""Time series of nodes and leases. Beats go to Redis, minutes in bulk to the database, hours stay for a month.

record      a beat's figures: one list a minute in Redis, and the newest of each node beside it
fold        once a minute: the lists of past minutes become rows, mean and highest of each series
thin        once an hour: minutes older than MINUTES_KEPT become hours, hours older than HOURS_KEPT go

10,000 nodes at a 15 s beat are 40,000 entries a minute in Redis and 10,000 rows a minute in the database: 3.6 million
rows of minutes and 7.2 million of hours at most. Without Redis the figures of those minutes are lost, and nothing else.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import DataError, IntegrityError, connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.models import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, Metric, Node
from marketplace.nodes.watching import liveness
from provider_agent.protocol import FIGURE_MAX, Load

logger = logging.getLogger(__name__)

NEWEST_KEY: Final = "souk:loads"  # node id -> its newest figures
MINUTE_KEY: Final = "souk:loads:{minute}"  # a list of [node id, figures]
TAKEN_KEY: Final = "souk:loads:{minute}:taken"  # while it becomes rows; found again when that failed
REDIS_SECONDS_KEPT: Final = 900
MINUTES_FOLDED_MAX: Final = 12  # as far back as Redis keeps them
ENTRIES_READ: Final = 5000
ENTRIES_PER_NODE_MAX: Final = 30  # of a minute's beats; further ones of the node are ignored
ROWS_PER_INSERT: Final = 2000
MINUTES_KEPT: Final = timedelta(hours=6)
HOURS_KEPT: Final = timedelta(days=30)
HOURS_THINNED_MAX: Final = 48  # at a time, so that a long pause is worked off by and by
POINTS_MAX: Final = 2000
DIGITS: Final = 3

Subject = tuple[UUID, UUID | None]  # node, and the lease that the figures are of
Sums = dict[str, list[float]]  # series -> [sum, highest, count]

_THIN = """
    INSERT INTO nodes_metric (node_id, lease_id, at, seconds, values)
    SELECT node_id, lease_id, %(hour)s, 3600, jsonb_object_agg(series, jsonb_build_array(mean, highest))
    FROM (
        SELECT node_id, lease_id, series,
               round(avg((pair->>0)::numeric), 3) AS mean, max((pair->>1)::numeric) AS highest
        FROM nodes_metric, jsonb_each(values) AS each(series, pair)
        WHERE seconds = 60 AND at >= %(hour)s AND at < %(end)s
        GROUP BY node_id, lease_id, series
    ) AS aggregates
    GROUP BY node_id, lease_id
    ON CONFLICT DO NOTHING
"""


async def record_loads_async(redis: AsyncRedis, loads: Sequence[tuple[UUID, Load]]) -> None:
    """Keep the figures of some beats, in one write; they may be lost, a beat may not fail for them."""
    bodies = [(str(node_id), load.model_dump_json()) for node_id, load in loads]
    key, newest = MINUTE_KEY.format(minute=_minute(clock.now())), dict[Any, Any](bodies)
    try:
        async with redis.pipeline(transaction=False) as pipe:
            pipe.hset(NEWEST_KEY, mapping=newest)
            pipe.rpush(key, *(f'["{node_id}",{body}]' for node_id, body in bodies))
            pipe.expire(key, REDIS_SECONDS_KEPT)
            await pipe.execute()
    except (RedisError, OSError):
        logger.warning("Redis did not take the figures of %d beats.", len(bodies))


def fold() -> int:
    """Past minutes become rows; returns how many. Repeats change nothing, and a minute that failed comes again."""
    now, count = _minute(clock.now()), 0
    for minute in range(now - MINUTES_FOLDED_MAX, now):
        try:
            count += _fold_minute(minute)
        except (RedisError, OSError):
            logger.warning("Redis did not answer; the figures of a minute wait.")
            return count
    return count


def thin(now: datetime | None = None) -> int:
    """Old minutes become hours, old hours go; returns how many rows went."""
    now = now or clock.now()
    gone, until = 0, _hour(now - MINUTES_KEPT)
    oldest = Metric.objects.filter(seconds=SECONDS_PER_MINUTE, at__lt=until).order_by("at").first()
    hour = _hour(oldest.at) if oldest else until
    for _ in range(HOURS_THINNED_MAX):
        if hour >= until:
            break
        gone += _thin_hour(hour)
        hour += timedelta(hours=1)
    gone += Metric.objects.filter(seconds=SECONDS_PER_HOUR, at__lt=now - HOURS_KEPT).delete()[0]
    return gone


def read(node_id: UUID, lease_id: UUID | None = None, *, since: datetime) -> Iterator[Metric]:
    """Hours and then minutes of a node, or of one lease as its node reports it, oldest first."""
    rows = Metric.objects.filter(node_id=node_id, lease_id=lease_id, at__gte=since).order_by("-at")[:POINTS_MAX]
    return reversed(rows)


def newest(node_id: UUID) -> Load | None:
    """The newest figures that a node sent; None without Redis, or before the first."""
    try:
        body: Any = liveness._redis().hget(NEWEST_KEY, str(node_id))
    except (RedisError, OSError):
        return None
    return Load.model_validate_json(body) if body else None


# --- below


def _fold_minute(minute: int) -> int:
    redis: Any = liveness._redis()
    key, taken = MINUTE_KEY.format(minute=minute), TAKEN_KEY.format(minute=minute)
    if not redis.exists(taken):
        if not redis.exists(key):
            return 0
        redis.rename(key, taken)
    sums = _sum_up(_entries(redis, taken))
    at = datetime.fromtimestamp(minute * SECONDS_PER_MINUTE, UTC)
    known = set(Node.objects.filter(pk__in={node for node, _ in sums}).values_list("pk", flat=True))
    rows = [
        Metric(node_id=node, lease_id=lease, at=at, seconds=SECONDS_PER_MINUTE, values=_means(series))
        for (node, lease), series in sums.items()
        if node in known and series
    ]
    with transaction.atomic():
        count = _store(rows)
        _count_orphans(sums)
    redis.delete(taken)
    return count


def _store(rows: list[Metric]) -> int:
    """All at once; where the database refuses one, each alone, so that it costs its node alone. Returns how many."""
    try:
        with transaction.atomic():
            Metric.objects.bulk_create(rows, batch_size=ROWS_PER_INSERT, ignore_conflicts=True)
            return len(rows)
    except (DataError, IntegrityError):
        logger.warning("The figures of a minute are stored row by row: the database refuses one of them.")
    count = 0
    for row in rows:
        with log_failures("The figures of a node were refused.", node_id=str(row.node_id)), transaction.atomic():
            Metric.objects.bulk_create([row], ignore_conflicts=True)
            count += 1
    return count


def _entries(redis: Any, key: str) -> Iterator[tuple[UUID, Load]]:
    start = 0
    while batch := redis.lrange(key, start, start + ENTRIES_READ - 1):
        start += len(batch)
        for line in batch:
            entry = None
            with log_failures("The figures of a beat cannot be read, and are left out."):
                entry = _entry(line)
            if entry is not None:
                yield entry


def _entry(line: str | bytes) -> tuple[UUID, Load]:
    node_id, body = json.loads(line)
    # It was validated when it came, and is ours since.
    leases = {UUID(lease_id): figures for lease_id, figures in body["leases"].items()}
    return UUID(node_id), Load.model_construct(node=body["node"], devices=body["devices"], leases=leases)


def _sum_up(entries: Iterable[tuple[UUID, Load]]) -> dict[Subject, Sums]:
    sums: defaultdict[Subject, Sums] = defaultdict(dict)
    counted: defaultdict[UUID, int] = defaultdict(int)
    for node_id, load in entries:
        counted[node_id] += 1
        if counted[node_id] > ENTRIES_PER_NODE_MAX:
            continue
        with log_failures("The figures of a beat cannot be added up, and are left out.", node_id=str(node_id)):
            _add(sums[node_id, None], load.node)
            for uuid, figures in load.devices.items():
                _add(sums[node_id, None], figures, prefix=f"{uuid}/")
            for lease_id, figures in load.leases.items():
                _add(sums[node_id, lease_id], figures)
    return sums


def _add(sums: Sums, figures: dict[str, float], *, prefix: str = "") -> None:
    for name, value in figures.items():
        if not abs(value) <= FIGURE_MAX:  # NaN is not, either: a mean of such figures is none that JSON has
            raise ValueError(f"{prefix}{name} is {value}; the most is {FIGURE_MAX:g}")
        entry = sums.setdefault(prefix + name, [0.0, value, 0])
        entry[0] += value
        entry[1] = max(entry[1], value)
        entry[2] += 1


def _means(sums: Sums) -> dict[str, list[float]]:
    return {name: [round(total / count, DIGITS), round(top, DIGITS)] for name, (total, top, count) in sums.items()}


def _count_orphans(sums: dict[Subject, Sums]) -> None:
    """The agent's own count, which only rises; most nodes have none, and cost nothing."""
    for (node_id, lease_id), series in sums.items():
        killed = int(series.get("ghosts_killed", [0, 0, 0])[1])
        if lease_id is None and 0 < killed < 2**31:
            Node.objects.filter(pk=node_id).update(ghosts_killed=Greatest(F("ghosts_killed"), Value(killed)))


def _thin_hour(hour: datetime) -> int:
    end = hour + timedelta(hours=1)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_THIN, {"hour": hour, "end": end})
        return Metric.objects.filter(seconds=SECONDS_PER_MINUTE, at__gte=hour, at__lt=end).delete()[0]


def _minute(moment: datetime) -> int:
    return int(moment.timestamp()) // SECONDS_PER_MINUTE


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
