"""Counts and times every request. The page that shows them is in metrics.py, so that counting imports no app."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)

PROCESS_METRICS = CollectorRegistry()
REQUESTS = Counter("souk_http_requests", "Answered requests.", ["method", "route", "status"], registry=PROCESS_METRICS)
SECONDS = Histogram(
    "souk_http_seconds", "Time to answer.", ["route"], buckets=BUCKETS_SECONDS, registry=PROCESS_METRICS
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def count_requests(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Middleware: every answer is counted under its route's pattern, so that ids do not make new series."""

    def counted(request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response = get_response(request)
        route = request.resolver_match.route if request.resolver_match else "none"
        method = request.method if request.method in METHODS else "other"
        REQUESTS.labels(method, route, response.status_code).inc()
        SECONDS.labels(route).observe(time.perf_counter() - started)
        return response

    return counted
