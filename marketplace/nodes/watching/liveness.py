"""Which nodes are online. Beats go to Redis, from there in bulk to the database; silence is judged by both.

beat        Redis hash souk:beats, node id -> unix time (without Redis: straight to the database)
flush       every 2 s: one UPDATE of last_seen_at; a node that is seen again comes back online
silent      three misses + 2 s: 17 s for a node that holds a lease, 47 s for an idle one
unheard     no beat since it was asked for one, as when its gang has lost a peer (jobs/running/suspicions.py)
mass        many at once: the server assumes the fault is its own, and no node is counted as silent
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Count, Max, Q
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.states import advance
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState
from provider_agent.protocol import (
    BEAT_SECONDS_IDLE,
    BEAT_SECONDS_LEASED,
    LOST_GRACE_SECONDS,
    MISSES_UNTIL_LOST,
)

logger = logging.getLogger(__name__)

BEATS_KEY: Final = "souk:beats"
REDIS_TIMEOUT_SECONDS: Final = 2.0
SILENT_SECONDS_LEASED: Final = MISSES_UNTIL_LOST * BEAT_SECONDS_LEASED + LOST_GRACE_SECONDS
SILENT_SECONDS_IDLE: Final = MISSES_UNTIL_LOST * BEAT_SECONDS_IDLE + LOST_GRACE_SECONDS
FLUSH_OVERLAP_SECONDS: Final = 3.0  # a beat comes to Redis up to half a second after it was received
FORGET_BEATS_SECONDS: Final = 600
WAKES_PER_FLUSH_MAX: Final = 500  # the rest comes back with the next flush
MASS_SILENCE_NODES: Final = 3
MASS_SILENCE_SHARE: Final = 0.3
MASS_SILENCE_PATIENCE_SECONDS: Final = 300  # after which silent nodes are taken to be silent, if other nodes send beats
RECENT_BEAT_SECONDS: Final = 60
UNASKED_SECONDS_MAX: Final = BEAT_SECONDS_LEASED + 1.0  # between two beats of a healthy node with a lease

_flushed_at = 0.0

_FLUSH = """
    UPDATE nodes_node AS node SET last_seen_at = beat.at
    FROM unnest(%s::uuid[], %s::timestamptz[]) AS beat (id, at)
    WHERE node.id = beat.id AND (node.last_seen_at IS NULL OR node.last_seen_at < beat.at)
"""


async def record_beats_async(redis: AsyncRedis, beats: Mapping[UUID, datetime]) -> bool:
    """Many at once, from an event loop. False: Redis did not take them, and `record_beats_in_database` should."""
    values: dict[Any, Any] = {str(node_id): repr(at.timestamp()) for node_id, at in beats.items()}
    try:
        await redis.hset(BEATS_KEY, mapping=values)
    except (RedisError, OSError):
        logger.warning("Redis did not take %d beats.", len(beats))
        return False
    return True


def record_beats_in_database(beats: Mapping[UUID, datetime]) -> int:
    """The beats while Redis is away, in one statement; none is moved back. Returns how many were news."""
    with connection.cursor() as cursor:
        cursor.execute(_FLUSH, [list(beats), list(beats.values())])
        return int(cursor.rowcount)


def flush_beats() -> int:
    """Write the beats to the database, in one statement; a silent node with a new beat is online again.

    Returns how many nodes were seen since this process' last flush, or some seconds longer. A beat is never moved back,
    so flushes may overlap.
    """
    global _flushed_at  # noqa: PLW0603 - one memory a process; without it all beats are looked at
    now = clock.now().timestamp()
    beats = _read_all_beats()
    old = [node_id for node_id, at in beats.items() if at < now - FORGET_BEATS_SECONDS]
    if old:
        _redis().hdel(BEATS_KEY, *old)
    since = min(_flushed_at, now) - FLUSH_OVERLAP_SECONDS  # clocks are set back, too
    news = {UUID(node_id): datetime.fromtimestamp(at, UTC) for node_id, at in beats.items() if at >= since}
    seen = record_beats_in_database(news) if news else 0
    if beats:  # none: Redis may not have answered
        _flushed_at = now
    _wake(datetime.fromtimestamp(now, UTC))
    return seen


def find_silent(now: datetime, leased_node_ids: Collection[UUID] = ()) -> list[UUID]:
    """Nodes that missed three beats and the grace; none while so many are silent that it must be the server's fault.

    A node in `leased_node_ids` is judged by the short interval, and in whatever state it is: one that was retired or
    quarantined in the middle of a lease falls silent too. The breaker is inside: do not apply it to the result again.
    """
    leased = set(leased_node_ids)
    nodes = Node.objects.filter(Q(pk__in=Node.objects.alive().values("pk")) | Q(pk__in=leased))
    fleet = nodes.aggregate(count=Count("pk"), newest=Max("last_seen_at"))
    quiet = Q(last_seen_at=None) | Q(last_seen_at__lt=now - timedelta(seconds=SILENT_SECONDS_LEASED))
    last_seen = dict(nodes.filter(quiet).values_list("pk", "last_seen_at"))
    limits = {pk: SILENT_SECONDS_LEASED if pk in leased else SILENT_SECONDS_IDLE for pk in last_seen}
    overdue = [pk for pk, seen in last_seen.items() if _is_over(now, seen, limits[pk])]
    # The database may lag behind (no worker flushed): the beat in Redis, if there is one, decides.
    last_seen |= {pk: max(seen, last_seen[pk] or seen) for pk, seen in _read_beats(overdue).items()}
    silent = [pk for pk in overdue if _is_over(now, last_seen[pk], limits[pk])]
    if not is_mass_silence(len(silent), fleet["count"]):
        return silent
    newest = max((seen for seen in (fleet["newest"], *last_seen.values()) if seen), default=None)
    is_server_hearing = newest is not None and not _is_over(now, newest, RECENT_BEAT_SECONDS)
    logger.error(
        "Many nodes fell silent at once; rescheduling is frozen.",
        extra={"silent": len(silent), "nodes": fleet["count"], "is_server_hearing": is_server_hearing},
    )
    if not is_server_hearing:
        return []
    return [pk for pk in silent if _is_over(now, last_seen[pk], limits[pk] + MASS_SILENCE_PATIENCE_SECONDS)]


def find_unheard_since(now: datetime, asked: Mapping[UUID, datetime]) -> set[UUID]:
    """Those of the nodes that sent no beat since they were asked for one, though one was due by itself; none where they
    are so many that it must be the server's fault.

    The second, because the question may not have reached a healthy node: nobody holds its sync, Redis lost the word.
    """
    last_seen = dict(Node.objects.filter(pk__in=asked).values_list("pk", "last_seen_at"))
    beats = _read_beats(list(last_seen))
    newest = {pk: max((at for at in (seen, beats.get(pk)) if at), default=None) for pk, seen in last_seen.items()}
    due = now - timedelta(seconds=UNASKED_SECONDS_MAX)
    unheard = {pk for pk, at in newest.items() if at is None or at < min(asked[pk], due)}
    return set() if is_mass_silence(len(unheard), Node.objects.alive().count()) else unheard


def is_mass_silence(silent: int, total: int) -> bool:
    """Whether so many of all nodes are silent that the fault is more likely ours."""
    return silent > max(MASS_SILENCE_NODES, MASS_SILENCE_SHARE * total)


def mark_offline(node_ids: Iterable[UUID], *, reason: str = "silent") -> list[UUID]:
    """Those of the nodes that were online or draining are offline; the others are left as they are."""
    marked = []
    for node in Node.objects.alive().filter(pk__in=list(node_ids)):
        try:
            advance(node, NodeState.OFFLINE, reason=reason)
        except StateConflict:  # another process moved it between the two statements
            continue
        marked.append(node.pk)
    return marked


def _wake(now: datetime) -> None:
    """Nodes that are away, or wait for their first beat after they were measured, and that beat now."""
    is_waiting = Q(state=NodeState.OFFLINE) | Q(state=NodeState.PENDING, measured_at__isnull=False)
    seen = Node.objects.filter(is_waiting, last_seen_at__gt=now - timedelta(seconds=SILENT_SECONDS_LEASED))
    for node in seen[:WAKES_PER_FLUSH_MAX]:
        target = NodeState.ONLINE if node.drain_requested_at is None else NodeState.DRAINING
        try:
            advance(node, target, reason="beat")
        except StateConflict:
            continue


def _is_over(now: datetime, seen: datetime | None, seconds: float) -> bool:
    return seen is None or now - seen > timedelta(seconds=seconds)


def _read_all_beats() -> dict[str, float]:
    try:
        raw: Any = _redis().hgetall(BEATS_KEY)
        return {_text(node_id): float(at) for node_id, at in raw.items()}
    except (RedisError, OSError):
        logger.warning("Redis did not answer; beats go straight to the database.")
        return {}


def _read_beats(node_ids: list[UUID]) -> dict[UUID, datetime]:
    if not node_ids:
        return {}
    try:
        values = _redis().hmget(BEATS_KEY, [str(node_id) for node_id in node_ids])
    except (RedisError, OSError):
        return {}
    return _parse({str(node_id): value for node_id, value in zip(node_ids, values, strict=True) if value})


def _parse(raw: Any) -> dict[UUID, datetime]:
    return {UUID(_text(node_id)): datetime.fromtimestamp(float(at), UTC) for node_id, at in raw.items()}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@lru_cache(maxsize=4)
def _client(url: str) -> Redis:
    return Redis.from_url(
        url,
        socket_timeout=REDIS_TIMEOUT_SECONDS,
        socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 1),  # once, for a connection that went stale; the database is there if it is down
    )


def _redis() -> Redis:
    return _client(settings.REDIS_URL)
