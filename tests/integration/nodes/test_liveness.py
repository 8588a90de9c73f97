"""Beats come in by Redis, silence is found, and a fault of our own is not taken for everybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from redis.asyncio import Redis as AsyncRedis

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import Event
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Device, Node, Offer, Provider
from marketplace.nodes.offering import availability
from marketplace.nodes.states import NodeState
from marketplace.nodes.watching import liveness
from tests.integration.nodes.agent import Agent, beat, bring_online, device, facts, measurements
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db

Fleet = Callable[[int], list[Node]]


@pytest.fixture
def fleet(provider: Provider) -> Fleet:
    def make(count: int) -> list[Node]:
        return [
            create_in_state(
                Node,
                NodeState.ONLINE,
                provider=provider,
                name=f"node-{number}",
                transport_public_key=new_id().hex * 2,
                receipt_address="0x" + new_id().hex + "0" * 8,
                executor="process",
                agent_version="1",
                protocol=1,
                memory_mib=1,
                cpu_count=1,
                last_seen_at=clock.now(),
            )
            for number in range(count)
        ]

    return make


def silence(nodes: list[Node], seconds: float) -> None:
    Node.objects.filter(pk__in=[node.pk for node in nodes]).update(
        last_seen_at=clock.now() - timedelta(seconds=seconds)
    )


def cut_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "_redis", lambda: liveness._client("unix:///nonexistent/redis.sock"))


def test_beats_of_a_fleet_are_flushed_in_one_update(fleet: Fleet, django_assert_num_queries: Any) -> None:
    nodes = fleet(50)
    silence(nodes, 40)
    for node in nodes:
        beat(node.pk)
    with django_assert_num_queries(2):  # the update, and who is back
        assert liveness.flush_beats() == 50
    assert not Node.objects.filter(last_seen_at__lt=clock.now() - timedelta(seconds=10)).exists()


def test_flushing_twice_changes_nothing(node: Node) -> None:
    beat(node.pk)
    assert (liveness.flush_beats(), liveness.flush_beats()) == (1, 0)


def test_beats_that_were_brought_in_already_are_not_brought_in_again(fleet: Fleet) -> None:
    """So that the work grows with what is new, and not with the fleet."""
    old, new = fleet(2)
    seen_at = clock.now() - timedelta(seconds=2 * liveness.FLUSH_OVERLAP_SECONDS)
    liveness._redis().hset(liveness.BEATS_KEY, str(old.pk), repr(seen_at.timestamp()))
    liveness.flush_beats()
    Node.objects.update(last_seen_at=None)
    beat(new.pk)
    assert liveness.flush_beats() == 1
    assert [Node.objects.get(pk=each.pk).last_seen_at is None for each in (old, new)] == [True, False]


def test_beats_of_a_time_when_redis_did_not_answer_are_brought_in_later(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_flushed_at", 0.0)
    silence([node], 60)
    seen_at = clock.now() - timedelta(seconds=2 * liveness.FLUSH_OVERLAP_SECONDS)
    liveness._redis().hset(liveness.BEATS_KEY, str(node.pk), repr(seen_at.timestamp()))
    with monkeypatch.context() as broken:
        broken.setattr(liveness, "_read_all_beats", dict)
        assert liveness.flush_beats() == 0
    assert liveness.flush_beats() == 1


def test_a_late_flush_never_moves_a_beat_back(node: Node) -> None:
    beat(node.pk)
    later = clock.now() + timedelta(seconds=5)
    Node.objects.update(last_seen_at=later)
    liveness.flush_beats()
    assert Node.objects.get().last_seen_at == later


def test_a_beat_of_an_unknown_node_is_harmless(node: Node) -> None:
    beat(new_id())
    assert liveness.flush_beats() == 0


def test_beats_from_an_event_loop_count_alike(fleet: Fleet) -> None:
    (node,) = fleet(1)
    silence([node], 40)

    async def record(url: str) -> bool:
        async with AsyncRedis.from_url(url) as client:
            return await liveness.record_beats_async(client, {node.pk: clock.now()})

    assert asyncio.run(record(settings.REDIS_URL)) is True
    assert liveness.flush_beats() == 1
    assert asyncio.run(record("unix:///nonexistent/redis.sock")) is False


def test_old_beats_are_dropped_from_redis(node: Node) -> None:
    liveness._redis().hset(liveness.BEATS_KEY, str(new_id()), str(clock.now().timestamp() - 10_000))
    beat(node.pk)
    liveness.flush_beats()
    assert liveness._redis().hlen(liveness.BEATS_KEY) == 1


def test_a_pending_node_comes_online_once_it_is_measured_and_beats(provider: Provider, agent: Agent) -> None:
    node = agent.enrol(provider)
    beat(node.pk)
    liveness.flush_beats()
    assert Node.objects.get().state == "pending"
    assert bring_online(node).state == "online"


def test_a_silent_node_goes_offline_and_comes_back_with_its_beat(node: Node) -> None:
    liveness._redis().delete(liveness.BEATS_KEY)
    silence([node], liveness.SILENT_SECONDS_IDLE + 1)
    assert liveness.find_silent(clock.now()) == [node.pk]
    assert liveness.mark_offline([node.pk]) == [node.pk]
    assert Node.objects.get().state == "offline"
    beat(node.pk)
    liveness.flush_beats()
    assert Node.objects.get().state == "online"
    moves = Event.objects.filter(subject_id=node.pk).order_by("pk").values_list("to_state", "reason")
    assert list(moves)[-2:] == [("offline", "silent"), ("online", "beat")]


def test_a_node_that_was_draining_comes_back_draining(node: Node) -> None:
    availability.drain(node, actor="test")
    liveness.mark_offline([node.pk])
    beat(node.pk)
    liveness.flush_beats()
    assert Node.objects.get().state == "draining"


def test_a_leased_node_is_missed_sooner(fleet: Fleet) -> None:
    leased, idle = fleet(2)
    silence([leased, idle], liveness.SILENT_SECONDS_LEASED + 1)
    assert liveness.find_silent(clock.now(), leased_node_ids=[leased.pk]) == [leased.pk]
    assert liveness.find_silent(clock.now()) == []


@pytest.mark.parametrize(("seconds", "is_silent"), [(16.5, False), (17.5, True)])
def test_silence_is_three_misses_and_two_seconds(fleet: Fleet, seconds: float, is_silent: bool) -> None:
    (node,) = fleet(1)
    now = clock.now()
    Node.objects.update(last_seen_at=now - timedelta(seconds=seconds))
    assert liveness.find_silent(now, [node.pk]) == ([node.pk] if is_silent else [])


def test_a_node_that_was_retired_under_its_lease_falls_silent(node: Node) -> None:
    liveness._redis().delete(liveness.BEATS_KEY)
    enrolment.retire(node)
    silence([node], 60)
    assert liveness.find_silent(clock.now()) == []
    assert liveness.find_silent(clock.now(), [node.pk]) == [node.pk]
    assert liveness.mark_offline([node.pk]) == []


def test_a_beat_that_was_not_flushed_yet_counts(fleet: Fleet) -> None:
    (node,) = fleet(1)
    silence([node], 300)
    beat(node.pk)
    assert liveness.find_silent(clock.now(), [node.pk]) == []


def test_without_redis_beats_go_to_the_database(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    (node,) = fleet(1)
    silence([node], 100)
    cut_redis(monkeypatch)
    liveness.record_beats_in_database({node.pk: clock.now()})
    assert liveness.find_silent(clock.now(), [node.pk]) == []
    assert liveness.flush_beats() == 0


def test_without_redis_a_node_still_comes_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    liveness.mark_offline([node.pk])
    cut_redis(monkeypatch)
    liveness.record_beats_in_database({node.pk: clock.now()})
    liveness.flush_beats()
    assert Node.objects.get().state == "online"


def test_when_many_fall_silent_at_once_nobody_is_lost(fleet: Fleet) -> None:
    nodes = fleet(20)
    silence(nodes[:7], 60)
    assert liveness.find_silent(clock.now()) == []
    silence(nodes, 60)
    assert liveness.find_silent(clock.now()) == []


def test_some_may_fall_silent_in_a_large_fleet(fleet: Fleet) -> None:
    nodes = fleet(20)
    silence(nodes[:6], 60)
    assert sorted(liveness.find_silent(clock.now())) == sorted(node.pk for node in nodes[:6])


def test_the_freeze_ends_for_who_stays_silent_while_others_send_beats(fleet: Fleet) -> None:
    nodes = fleet(10)
    silence(nodes[:5], liveness.SILENT_SECONDS_IDLE + liveness.MASS_SILENCE_PATIENCE_SECONDS + 1)
    assert len(liveness.find_silent(clock.now())) == 5
    silence(nodes[5:], liveness.RECENT_BEAT_SECONDS + 1)  # now no node reports: the fault is ours
    assert liveness.find_silent(clock.now()) == []


def test_nothing_new_is_placed_on_a_suspect(node: Node) -> None:
    assert (Device.objects.rentable().count(), Offer.objects.rentable().count()) == (1, 1)
    silence([node], 2 * 15 + 3)
    assert (Device.objects.rentable().count(), Offer.objects.rentable().count()) == (0, 0)


def test_a_device_that_was_not_measured_is_not_rentable(node: Node) -> None:
    from marketplace.nodes.inventory import devices

    devices.update_facts(node, facts(device("GPU-1"), device("GPU-2", index=1)))
    assert [one.uuid for one in Device.objects.rentable()] == ["GPU-1"]
    devices.record_measurements(node, measurements("GPU-1", "GPU-2"))
    assert Device.objects.rentable().count() == 2
