"""The queue: bounded, in turn, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.routing import fair_queue
from jobs.gateway.routing.fair_queue import FairQueue, QueueFull, retry_after

ANY_TIME = settings(deadline=None)  # the machine may be slow

KEYS = [UUID(int=number, version=4) for number in range(1, 6)]


class Slots:
    """So many places."""

    def __init__(self, free: int = 0) -> None:
        self.free = free

    def take(self) -> object | None:
        if not self.free:
            return None
        self.free -= 1
        return object()


@ANY_TIME
@given(st.lists(st.integers(0, 4), max_size=60))
def test_keys_take_turns_and_each_is_served_in_its_own_order(arrivals):
    async def scenario():
        line: FairQueue[object]
        line, slots, served = FairQueue(), Slots(), []
        waiters = [(key, line.join(KEYS[key], slots.take, place)) for place, key in enumerate(arrivals)]
        while len(line):
            slots.free = 1
            line.pump()
            done = [at for at, (_, waiter) in enumerate(waiters) if waiter.future.done() and at not in served]
            assert len(done) == 1
            served += done
        return served

    served = asyncio.run(scenario())
    assert sorted(served) == list(range(len(arrivals)))
    for key in range(5):
        own = [at for at in served if arrivals[at] == key]
        assert own == sorted(own)
    for at in range(len(served)):  # between two turns of a key nobody else who waits has more than one
        key = arrivals[served[at]]
        later = [arrivals[place] for place in served[at + 1 :]]
        if key in later:
            between = later[: later.index(key)]
            assert len(set(between)) == len(between)
            assert {other for other in range(5) if other != key and other in later} <= set(between)


@ANY_TIME
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["join", "first", "leave", "free", "cancel"])), max_size=60)
)
def test_the_count_is_right_whatever_happens_and_no_place_is_lost(steps):
    async def scenario():
        line: FairQueue[object]
        line, slots, waiting_now, given_out = FairQueue(), Slots(), [], 0
        for key, step in steps:
            if step in ("join", "first"):
                waiting_now.append((KEYS[key], line.join(KEYS[key], slots.take, 0.0, is_first=step == "first")))
            elif step == "free":
                slots.free += 1
            elif waiting_now:
                key_id, waiter = waiting_now.pop(key % len(waiting_now))
                if step == "cancel":
                    waiter.future.cancel()
                line.leave(key_id, waiter)
                given_out += waiter.future.done() and not waiter.future.cancelled()
            line.pump()
            done = [pair for pair in waiting_now if pair[1].future.done()]
            given_out += len(done)
            waiting_now = [pair for pair in waiting_now if pair not in done]
            assert len(line) == len(waiting_now)
            assert not (slots.free and waiting_now)
        assert given_out + slots.free == sum(step == "free" for _, step in steps)

    asyncio.run(scenario())


def test_a_key_has_its_bound_and_the_queue_another(monkeypatch):
    monkeypatch.setattr(fair_queue, "QUEUED_MAX", 5)
    monkeypatch.setattr(fair_queue, "KEY_QUEUED_MAX", 3)

    async def scenario():
        line: FairQueue[object]
        line, slots = FairQueue(), Slots()
        for _ in range(3):
            line.join(KEYS[0], slots.take, 0.0)
        with pytest.raises(QueueFull):
            line.join(KEYS[0], slots.take, 0.0)
        for _ in range(2):
            line.join(KEYS[1], slots.take, 0.0)
        with pytest.raises(QueueFull):
            line.join(KEYS[2], slots.take, 0.0)
        line.join(KEYS[2], slots.take, 0.0, is_first=True)  # it had its turn already
        slots.free = 1
        line.pump()
        assert len(line) == 5

    asyncio.run(scenario())


def test_a_place_that_one_cannot_use_goes_to_the_next():
    async def scenario():
        line: FairQueue[object]
        line, slots = FairQueue(), Slots(1)
        picky = line.join(KEYS[0], lambda: None, 0.0)
        other = line.join(KEYS[1], slots.take, 0.0)
        line.pump()
        assert other.future.done() and not picky.future.done() and len(line) == 1

    asyncio.run(scenario())


@ANY_TIME
@given(st.integers(0, 2000), st.integers(0, 100), st.floats(0.001, 1000))
def test_the_time_to_come_back_grows_with_the_queue_and_is_bounded(queued, capacity, seconds):
    after = retry_after(queued, capacity, seconds)
    assert 1 <= after <= fair_queue.RETRY_AFTER_MAX
    assert retry_after(queued + 100, capacity, seconds) >= after
