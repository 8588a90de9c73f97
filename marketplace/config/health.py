"""/healthz: whether this process can do its work, and what is down if not."""

from __future__ import annotations

import logging

from django.core.cache import cache
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from redis.exceptions import RedisError

log = logging.getLogger(__name__)


def healthz(request: HttpRequest) -> JsonResponse:
    """200 {"status": "ok"}; 503 that names what does not answer. Needs no key and shows nothing else."""
    parts = {"database": _database_answers(), "redis": _redis_answers()}
    down = [name for name, answers in parts.items() if not answers]
    body = {"status": "down" if down else "ok", "down": down}
    return JsonResponse(body, status=503 if down else 200, headers={"Cache-Control": "no-store"})


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, OSError) as error:
        log.error("The database did not answer.", extra={"error": str(error)})
        connection.close()
        return False
    return True


def _redis_answers() -> bool:
    try:
        cache.get("healthz")
    except (RedisError, OSError) as error:
        log.error("Redis did not answer.", extra={"error": str(error)})
        return False
    return True
