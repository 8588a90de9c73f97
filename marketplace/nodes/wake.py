"""Wake waiting agents when something changed for them. Redis only carries the hint: the next beat brings the change."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from functools import lru_cache
from uuid import UUID

import redis
from django.conf import settings
from django.db import transaction

CHANNEL = "souk:wake"
NODES_PER_MESSAGE_MAX = 1000
PUBLISH_SECONDS_MAX = 1.0  # a Redis that does not answer may delay a commit's caller by this much, and no more

log = logging.getLogger(__name__)


def wake_nodes(node_ids: Iterable[UUID]) -> None:
    """Wake the held syncs of these nodes once the present transaction has committed; never raises."""
    ids = sorted({str(node_id) for node_id in node_ids})
    if ids:
        transaction.on_commit(lambda: _publish(ids), robust=True)


def parse_message(data: bytes) -> list[UUID]:
    """The nodes of one message; an unreadable one wakes no node."""
    try:
        return [UUID(text) for text in json.loads(data)]
    except (ValueError, TypeError, AttributeError):
        return []


def _publish(ids: list[str]) -> None:
    try:
        for start in range(0, len(ids), NODES_PER_MESSAGE_MAX):
            _client(settings.REDIS_URL).publish(CHANNEL, json.dumps(ids[start : start + NODES_PER_MESSAGE_MAX]))
    except redis.RedisError as error:
        log.warning("Nodes were not woken, they learn it with their next beat: %s", error)


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=PUBLISH_SECONDS_MAX, socket_connect_timeout=PUBLISH_SECONDS_MAX, retry=None
    )
