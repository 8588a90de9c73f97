"""/metrics of the gateway: plain counts on the hot path, made into Prometheus's text at each request of /metrics."""

from __future__ import annotations

import hmac
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
LABELS_MAX = 1_000  # pairs of route and outcome: a bound, not a hope
LOOPBACK = ("127.", "::1")


class Metrics(Collector):
    """Counts since the start. `gauges`: name -> (help, what it is now)."""

    def __init__(self) -> None:
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.in_flight = 0
        self._requests: Counter[tuple[str, int, str]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def observe(self, route: str, status: int, code: str, seconds: float) -> None:
        """One request ended. `code`: of its error, or empty."""
        if (route, status, code) in self._requests or len(self._requests) < LABELS_MAX:
            self._requests[route, status, code] += 1
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def text(self) -> bytes:
        """In Prometheus's format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """For Prometheus's client."""
        requests = CounterMetricFamily(
            "souk_gateway_requests", "Requests by outcome.", labels=["route", "status", "code"]
        )
        for (route, status, code), count in self._requests.items():
            requests.add_metric([route, str(status), code], count)
        yield requests
        total, buckets = 0, []
        for bound, count in zip((*BUCKETS, float("inf")), self._buckets, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        seconds = HistogramMetricFamily("souk_gateway_request_seconds", "From a request's head to its answer's end.")
        seconds.add_metric([], buckets, self._seconds)
        yield seconds
        yield GaugeMetricFamily("souk_gateway_in_flight", "Requests under way.", value=self.in_flight)
        for name, (text, value) in self.gauges.items():
            yield GaugeMetricFamily(f"souk_gateway_{name}", text, value=value())


def may_read(peer: str, headers: dict[bytes, bytes], token: str) -> bool:
    """Who shows the token; where there is none, a process of this computer that is no proxy for somebody else."""
    if token:
        return hmac.compare_digest(headers.get(b"authorization", b""), f"Bearer {token}".encode())
    is_proxied = b"x-forwarded-for" in headers or b"forwarded" in headers
    return peer.startswith(LOOPBACK) and not is_proxied
