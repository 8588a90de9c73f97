"""Who is put aside, and who comes back."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.engines.tokens import Count
from jobs.gateway.engines.upstream import Announced
from jobs.gateway.routing import hedging, replica_view
from jobs.gateway.routing.replica_view import ReplicaView, slow_ones
from tests.unit.jobs.gateway.inference_requests import KEY

ANY_TIME = settings(deadline=None)  # the machine may be slow


def view(*firsts: float) -> ReplicaView:
    made = ReplicaView(Announced(KEY, "some", frozenset({"chat"}), None), 0.0)
    for first in firsts:
        made.note_first_token(first)
    return made


def test_failures_in_a_row_put_it_aside_and_one_success_between_does_not():
    it = view()
    for _ in range(5):
        it.note_failed(1.0, "broke")
        it.note_failed(1.0, "broke")
        it.note_served(1.0, 0.5, Count(1, 1))
    assert it.is_good
    for _ in range(3):
        it.note_failed(2.0, "broke")
    assert not it.is_good and "broke" in it.why and it.probe_at == 2.0 + replica_view.PROBE_SECONDS


def test_probes_come_ever_more_seldom_and_a_token_brings_it_back():
    it = view()
    it.put_aside(0.0, "slow")
    pauses = []
    for _ in range(10):
        now = it.probe_at
        it.note_probe_failed(now, "no")
        pauses.append(it.probe_at - now)
    assert pauses == sorted(pauses) and pauses[-1] == replica_view.PROBE_SECONDS_MAX
    it.readmit(500.0)
    assert it.is_good and it.probe_at == 500.0 + replica_view.IDLE_SECONDS


def test_what_began_before_it_was_put_aside_does_not_put_off_its_probe():
    it = view()
    it.put_aside(1.0, "broke")
    it.note_alive(1.5)
    it.note_served(1.6, 0.5, Count(1, 1))
    assert it.probe_at == 1.0 + replica_view.PROBE_SECONDS and not it.is_good
    it.readmit(2.0)
    it.note_alive(3.0)
    assert it.probe_at == 3.0 + replica_view.IDLE_SECONDS


def test_an_idle_replica_is_put_aside_by_one_failed_probe_and_a_busy_one_by_three():
    idle, busy = view(), view()
    idle.note_probe_failed(1.0, "no")
    busy.in_flight = 2
    busy.note_probe_failed(1.0, "no")
    busy.note_probe_failed(2.0, "no")
    assert not idle.is_good and busy.is_good
    busy.note_probe_failed(3.0, "no")
    assert not busy.is_good


def test_the_slow_one_among_its_peers_is_found():
    peers = [view(*[0.1 + n / 100] * 10) for n in range(4)]
    slow = view(*[2.0] * 10)
    assert [(found, why) for found, why in slow_ones([*peers, slow])] == [
        (slow, "first tokens after 2.00 s, its peers' after 0.12 s")
    ]
    assert slow_ones([peers[0], slow]) == []  # of two nobody knows who is right
    assert slow_ones([*peers, view(2.0)]) == []  # too few samples


@ANY_TIME
@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=12), st.integers(0, 12))
def test_never_more_than_a_third_is_put_aside_for_being_slow(medians, already):
    views = [view(*[median] * 10) for median in medians]
    for one in views[:already]:
        one.put_aside(0.0, "broken")
    for one, why in slow_ones(views):
        one.put_aside(1.0, why)
    aside = sum(not one.is_good for one in views)
    assert aside <= max(min(already, len(views)), len(views) * replica_view.ASIDE_SHARE_MAX)


def test_what_is_reported_is_counted_once():
    it = view(0.2)
    it.note_served(1.0, 2.0, Count(10, 21), stream_seconds=2.0)
    load = it.load(KEY)
    assert (load.served, load.input_tokens, load.output_tokens) == (1, 10, 21)
    assert (load.tokens_per_second, load.first_token_ms_p50) == (10.0, 200.0)
    assert (it.load(KEY).served, it.load(KEY).tokens_per_second) == (0, None)


def test_a_race_takes_the_faster_and_drops_what_comes_too_late():
    async def scenario():
        dropped, started = [], []

        async def drop(value):
            dropped.append(value)

        async def come(value, seconds, stubborn=False):
            started.append(value)
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                if not stubborn:
                    raise
            if isinstance(value, Exception):
                raise value
            return value

        async def run(one, other, delay):
            return await hedging.race(lambda: come(*one), lambda: other and come(*other), delay, drop)

        assert await run(("a", 0), ("b", 0), 5) == "a" and started == ["a"]
        assert await run(("a", 30), ("b", 0), 0) == "b" and dropped == []
        assert await run(("late", 30, True), ("b", 0), 0) == "b"
        await asyncio.sleep(0.05)  # nobody waits for the other one's end
        assert dropped == ["late"]
        assert await run((ValueError(), 0.05), ("b", 0.1), 0) == "b"
        assert await run(("a", 0.05), None, 0) == "a"
        try:
            await run((ValueError("first"), 0.05), (KeyError("second"), 0.05), 0)
        except ValueError as error:
            assert str(error) == "first"
        else:
            raise AssertionError
        racing = asyncio.create_task(run(("x", 30), ("y", 30), 0))
        await asyncio.sleep(0.05)
        racing.cancel()
        try:
            await racing
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            return len(asyncio.all_tasks())
        raise AssertionError

    assert asyncio.run(scenario()) == 1
