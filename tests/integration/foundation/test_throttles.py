"""Throttles count, with Redis and without it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.core.cache import cache
from django.core.cache.backends.redis import RedisCache
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from marketplace.foundation import throttles


class ThreeAMinute(throttles.AnonThrottle):
    rate = "3/min"
    scope = "three"


def ask(times: int) -> list[bool]:
    request: Any = APIView().initialize_request(APIRequestFactory().get("/"))
    return [ThreeAMinute().allow_request(request, APIView()) for _ in range(times)]


def test_the_fourth_is_refused() -> None:
    cache.clear()
    assert ask(4) == [True, True, True, False]


def test_the_fourth_is_refused_while_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr(RedisCache, "get", refuse)
    throttles._fallback.clear()
    assert ask(4) == [True, True, True, False]
