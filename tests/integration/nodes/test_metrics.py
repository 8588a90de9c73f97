"""Figures of nodes: from beats to minutes to hours, for their owners; and devices that fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from pydantic import ValidationError
from redis.asyncio import Redis

from marketplace.accounts.models import Membership, User
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import Device, Metric, Node, Offer, Provider
from marketplace.nodes.watching import charts, liveness, metrics
from provider_agent.protocol import Load
from tests.integration.nodes.agent import Agent, bring_online, device, facts
from tests.people import sign

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the clock of the package."""

    def set_to(moment: datetime) -> None:
        monkeypatch.setattr("marketplace.foundation.clock.now", lambda: moment)

    set_to(NOW)
    return set_to


def beat(node_id: UUID, **load: Any) -> None:
    """What the sync process does with a beat's figures."""
    import asyncio

    async def go() -> None:
        redis = Redis.from_url(settings.REDIS_URL)
        await metrics.record_loads_async(redis, [(node_id, Load(**load))])
        await redis.aclose()

    asyncio.run(go())


def test_beats_of_a_minute_become_one_row_with_mean_and_highest(node: Node, at: Any) -> None:
    for percent in (10, 20, 60):
        beat(node.pk, node={"cpu_percent": percent}, devices={"GPU-1": {"power_watts": percent * 2}})
    assert metrics.fold() == 0, "a minute that still goes on is left alone"
    at(NOW + timedelta(minutes=1))
    assert metrics.fold() == 1
    assert metrics.fold() == 0
    row = Metric.objects.get()
    assert (row.at, row.seconds) == (NOW.replace(second=0), 60)
    assert row.values == {"cpu_percent": [30, 60], "GPU-1/power_watts": [60, 120]}
    newest = metrics.newest(node.pk)
    assert newest is not None
    assert newest.node == {"cpu_percent": 60}


def test_a_minute_whose_fold_was_cut_off_comes_again(node: Node, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(node.pk, node={"cpu_percent": 10})
    at(NOW + timedelta(minutes=1))
    with monkeypatch.context() as broken:
        broken.setattr(metrics, "_count_orphans", lambda sums: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            metrics.fold()
    assert Metric.objects.count() == 0
    assert metrics.fold() == 1


def test_a_lease_has_a_row_of_its_own_and_orphan_containers_are_counted(node: Node, at: Any) -> None:
    lease = uuid4()
    beat(node.pk, node={"ghosts_killed": 2}, leases={lease: {"memory_used_mib": 512}})
    beat(uuid4(), node={"cpu_percent": 1})  # a node that is gone
    at(NOW + timedelta(minutes=1))
    assert metrics.fold() == 2
    assert [row.values for row in metrics.read(node.pk, lease, since=NOW - timedelta(hours=1))] == [
        {"memory_used_mib": [512, 512]}
    ]
    assert Node.objects.get(pk=node.pk).ghosts_killed == 2


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '["{node}", {"node": {"cpu_percent": 1.79e308}, "devices": {}, "leases": {}}]',
        '["{node}", {"node": {"cpu_percent": "much"}, "devices": {}, "leases": {}}]',
        '["{node}", {"node": {}, "devices": {"GPU\\u0000": {"power_watts": 1}}, "leases": {}}]',
        '["{node}", {"node": {"ghosts_killed": 1e400}, "devices": {}, "leases": {}}]',
    ],
)
def test_figures_that_cannot_be_stored_cost_their_node_alone(
    node: Node, provider: Provider, at: Any, line: str
) -> None:
    other = bring_online(Agent().enrol(provider, facts=facts(device("GPU-2"))))
    beat(other.pk, node={"cpu_percent": 10})
    redis: Any = liveness._client(settings.REDIS_URL)
    key = metrics.MINUTE_KEY.format(minute=int(NOW.timestamp()) // 60)
    redis.rpush(key, *[line.replace("{node}", str(node.pk))] * 3)
    at(NOW + timedelta(minutes=1))
    metrics.fold()
    assert [row.values for row in metrics.read(other.pk, since=NOW - timedelta(hours=1))] == [{"cpu_percent": [10, 10]}]
    assert not redis.exists(metrics.TAKEN_KEY.format(minute=int(NOW.timestamp()) // 60))


@pytest.mark.parametrize("figure", [1.79e308, -1.79e308, float("inf"), float("nan"), 1e22, True, "1"])
def test_figures_beyond_all_measure_are_refused(figure: Any) -> None:
    for load in ({"node": {"a": figure}}, {"devices": {"GPU-1": {"a": figure}}}, {"leases": {uuid4(): {"a": figure}}}):
        with pytest.raises(ValidationError):
            Load(**load)


def test_a_node_that_sends_without_end_has_its_first_figures_accepted(node: Node, at: Any) -> None:
    for _ in range(metrics.ENTRIES_PER_NODE_MAX):
        beat(node.pk, node={"cpu_percent": 1})
    beat(node.pk, node={"cpu_percent": 99})
    at(NOW + timedelta(minutes=1))
    metrics.fold()
    assert Metric.objects.get().values == {"cpu_percent": [1, 1]}


def test_old_minutes_become_hours_and_old_hours_go(node: Node, at: Any) -> None:
    hour = NOW.replace(hour=2, minute=0, second=0)
    for minute in range(60):
        values = {"cpu_percent": [minute, minute + 1]}
        Metric.objects.create(node=node, at=hour + timedelta(minutes=minute), seconds=60, values=values)
    recent = Metric.objects.create(node=node, at=NOW - timedelta(hours=1), seconds=60, values={})
    Metric.objects.create(node=node, at=NOW - timedelta(days=31), seconds=3600, values={})
    assert metrics.thin() == 61
    assert metrics.thin() == 0
    one = Metric.objects.exclude(pk=recent.pk).get()
    assert (one.at, one.seconds, one.values) == (hour, 3600, {"cpu_percent": [29.5, 60]})


def test_bob_reads_his_nodes_figures_and_alice_does_not(node: Node, bob: Membership, alice: Membership) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    Metric.objects.create(node=node, at=now - timedelta(minutes=5), seconds=60, values={"cpu_percent": [1, 2]})
    Metric.objects.create(node=node, at=now - timedelta(hours=9), seconds=3600, values={"cpu_percent": [3, 4]})
    path = f"/api/v1/provider/nodes/{node.pk}/metrics"
    assert [point["values"] for point in sign(bob).get(path).json()] == [{"cpu_percent": [1, 2]}]
    since = (now - timedelta(days=1)).isoformat()
    assert [point["seconds"] for point in sign(bob).get(path, {"since": since}).json()] == [3600, 60]
    assert sign(bob).get(path, {"since": "soon"}).status_code == 400
    assert sign(alice).get(path).status_code in {403, 404}


def test_the_operators_page_draws_them(node: Node) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@example.org"))
    now = timezone.now()
    for minute in range(5):
        values = {"cpu_percent": [minute, minute], "<script>/power_watts": [1, 1]}
        Metric.objects.create(node=node, at=now - timedelta(minutes=9 - minute), seconds=60, values=values)
    page = client.get(f"/admin/nodes/node/{node.pk}/change/").content.decode()
    assert page.count("<polyline") == 2
    assert "cpu_percent" in page
    assert "<script>/power" not in page
    assert charts.draw_all([]) == "Nothing was measured yet."


def test_device_with_a_fault_leaves_the_market_and_the_others_stay(provider: Provider, agent: Agent) -> None:
    two = [device("GPU-1"), device("GPU-2", index=1)]
    node = bring_online(agent.enrol(provider, facts=facts(*two)))
    assert Device.objects.rentable().count() == 2
    broken = two[0].model_copy(update={"fault": "Xid 79: GPU has fallen off the bus"})
    devices.update_facts(node, facts(broken, two[1]))
    assert list(Device.objects.rentable().values_list("uuid", flat=True)) == ["GPU-2"]
    assert Device.objects.get(uuid="GPU-1").fault == "Xid 79: GPU has fallen off the bus"
    assert Offer.objects.rentable().count() == 1
    devices.update_facts(node, facts(*two))
    assert Device.objects.rentable().count() == 2
    assert Device.objects.get(uuid="GPU-1").fault == ""


def test_device_that_is_gone_says_so(node: Node) -> None:
    devices.update_facts(node, facts(device("GPU-7")))
    assert Device.objects.get(uuid="GPU-1").fault == "not in the machine any more"
