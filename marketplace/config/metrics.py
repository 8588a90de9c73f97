"""/metrics for Prometheus: counts of requests (request_metrics.py), and the market's state as it is now.

Open to loopback and to requests with SOUK_METRICS_TOKEN; it holds counts only, no names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, DurationField, ExpressionWrapper, F, Min, Sum
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from billing.books import ledger
from billing.models import Hold
from billing.notices import alerts
from jobs.artifacts import copies
from jobs.artifacts.choice import second_store_name
from jobs.endpoints.replicas import GATEWAY_SECONDS_MAX
from jobs.models import Endpoint, Gateway, Job, Lease, Replica
from jobs.states import JobState, LeaseState, ReplicaState
from marketplace.config.checks import LOOPBACK
from marketplace.config.request_metrics import PROCESS_METRICS
from marketplace.foundation import clock
from marketplace.foundation.addresses.client_address import client_address, is_forwarded
from marketplace.nodes.models import Device, Node
from marketplace.nodes.states import NodeState
from provider_agent.protocol import Reason

BEAT_FRESH_SECONDS = 30


def metrics(request: HttpRequest) -> HttpResponse:
    """The text format of Prometheus; 403 for strangers."""
    if not _may_read(request):
        return HttpResponse("Metrics are for loopback, or for who sends SOUK_METRICS_TOKEN.\n", status=403)
    registry = CollectorRegistry()
    registry.register(Market())
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text = generate_latest(registry)
    else:
        text = generate_latest(registry) + generate_latest(PROCESS_METRICS)
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


class Market(Collector):
    """Gauges from the database, where the truth is; nothing is counted twice by several processes."""

    def collect(self) -> Iterator[Metric]:
        yield _by_label("souk_nodes", "Nodes by state.", "state", Node.objects.all())
        yield _by_label("souk_jobs", "Jobs by state.", "state", Job.objects.all())
        yield _by_label("souk_holds", "Holds by state.", "state", Hold.objects.all())
        yield GaugeMetricFamily("souk_devices", "Devices of all nodes.", value=Device.objects.count())
        live = Lease.objects.exclude(state=LeaseState.ENDED).count()
        yield GaugeMetricFamily("souk_live_leases", "Leases that hold devices.", value=live)
        yield GaugeMetricFamily("souk_queue_age_seconds", "Age of the oldest queued job.", value=_queue_age_seconds())
        yield GaugeMetricFamily("souk_beating_nodes", "Nodes seen in the last 30 s.", value=_beating_nodes())
        yield _by_label(
            "souk_agents",
            "Nodes by their agent's version.",
            "agent_version",
            Node.objects.exclude(state=NodeState.RETIRED),
        )
        yield GaugeMetricFamily(
            "souk_agents_rolled_back",
            "Nodes that rolled back a release of the agent.",
            value=Node.objects.exclude(state=NodeState.RETIRED).exclude(rolled_back_version="").count(),
        )
        yield from _serving()
        orphans = Node.objects.aggregate(sum=Sum("ghosts_killed"))["sum"] or 0
        yield GaugeMetricFamily("souk_orphans_ended", "Programs without a lease that agents ended.", value=orphans)
        # Until the next version: the name that this metric had.
        yield GaugeMetricFamily("souk_ghosts_killed", "Deprecated: see souk_orphans_ended.", value=orphans)
        lost, refunded_ms = _leases_without_program()
        yield GaugeMetricFamily("souk_leases_without_program", "Leases whose program was gone.", value=lost)
        yield GaugeMetricFamily(
            "souk_refunded_seconds", "Seconds that were seen to run and not charged for it.", value=refunded_ms / 1000
        )
        open_alerts = GaugeMetricFamily("souk_alerts_open", "Alerts that nobody closed yet.", labels=["kind"])
        for kind, count in sorted(alerts.open_by_kind().items()):
            open_alerts.add_metric([kind], count)
        yield open_alerts
        yield from _copies()
        total = sum(ledger.trial_balance().values())
        yield GaugeMetricFamily("souk_ledger_sum_usd_micros", "Sum over all accounts; must be 0.", value=total)


def _copies() -> Iterator[Metric]:
    """Second copies, where the settings name a store for them."""
    if not second_store_name():
        return
    family = GaugeMetricFamily("souk_artifact_copies", "Second copies of artifacts.", labels=["state"])
    for state, count in copies.counts().items():
        family.add_metric([state], count)
    yield family
    text = "For how long the oldest artifact without a second copy has been complete."
    yield GaugeMetricFamily("souk_artifact_copies_behind_seconds", text, value=copies.behind_seconds())


def _serving() -> Iterator[Metric]:
    """What is served now. Requests and their outcomes are in the gateways' own /metrics."""
    is_open = Endpoint.objects.filter(is_open=True)
    yield _by_label("souk_endpoints", "Open endpoints by their job's state.", "state", is_open, field="job__state")
    live = Replica.objects.exclude(state=ReplicaState.GONE)
    yield _by_label("souk_replicas", "Replicas that are not gone, by state.", "state", live)
    alive = Gateway.objects.filter(seen_at__gt=clock.now() - timedelta(seconds=GATEWAY_SECONDS_MAX)).count()
    text = f"Gateways that sent a sync in the last {GATEWAY_SECONDS_MAX} s."
    yield GaugeMetricFamily("souk_gateways_alive", text, value=alive)


def _by_label(name: str, text: str, label: str, rows: object, *, field: str = "") -> Metric:
    """Counts by `field`, which is called as the label unless it is named."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for state, count in rows.order_by().values_list(field or label).annotate(Count("pk")):  # type: ignore[attr-defined]
        family.add_metric([state], count)
    return family


def _queue_age_seconds() -> float:
    oldest = Job.objects.filter(state=JobState.QUEUED).aggregate(oldest=Min("created_at"))["oldest"]
    return max(0.0, (clock.now() - oldest).total_seconds()) if oldest else 0.0


def _leases_without_program() -> tuple[int, float]:
    """How many ended so, and the milliseconds that were observed and not charged."""
    lost = Lease.objects.filter(state=LeaseState.ENDED, reported_reason=Reason.PROCESS_VANISHED.value)
    seen = ExpressionWrapper(F("observed_until") - F("running_at"), output_field=DurationField())
    found = lost.aggregate(count=Count("pk"), seen=Sum(seen), billed=Sum("billable_ms"))
    seen_ms = found["seen"].total_seconds() * 1000 if found["seen"] else 0.0
    return found["count"], max(seen_ms - (found["billed"] or 0), 0.0)


def _beating_nodes() -> int:
    return Node.objects.filter(last_seen_at__gte=clock.now() - timedelta(seconds=BEAT_FRESH_SECONDS)).count()


def _may_read(request: HttpRequest) -> bool:
    if token := settings.SOUK_METRICS_TOKEN:
        return constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {token}")
    # A proxy in front makes every visitor look like loopback, where SOUK_TRUSTED_PROXIES does not name it.
    return client_address(request) in LOOPBACK and not is_forwarded(request)
