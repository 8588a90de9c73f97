"""How many requests a caller may send. Counted in Redis; without Redis each process counts for itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import AnonRateThrottle, ScopedRateThrottle, SimpleRateThrottle, UserRateThrottle

from marketplace.foundation.addresses.client_address import client_address
from marketplace.foundation.addresses.forwarded import counted_address

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which loads the throttles itself, while it is being imported

logger = logging.getLogger(__name__)

FALLBACK_ENTRIES_MAX = 10_000

_fallback: BaseCache = LocMemCache("souk-throttles", {"OPTIONS": {"MAX_ENTRIES": FALLBACK_ENTRIES_MAX}})


class _WithoutRedisToo(SimpleRateThrottle):
    """Keeps counting, process by process, while Redis is away: neither an outage nor unlimited access."""

    def get_ident(self, request: Request) -> str:
        return counted_address(client_address(request))

    def allow_request(self, request: Request, view: APIView) -> bool:
        try:
            return super().allow_request(request, view)
        except (RedisError, OSError):
            logger.warning("Redis did not answer a throttle; this process counts for itself.")
            self.cache = _fallback
            return super().allow_request(request, view)


class AnonThrottle(_WithoutRedisToo, AnonRateThrottle):
    """Requests without a user, by address."""


class UserThrottle(_WithoutRedisToo, UserRateThrottle):
    """Requests of one user, with whatever key."""


class ScopedThrottle(_WithoutRedisToo, ScopedRateThrottle):
    """Requests of one kind: the view names its `throttle_scope`."""
