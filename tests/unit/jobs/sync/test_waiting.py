"""Bells: who is woken, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from jobs.sync.waiting import Bells
from marketplace.nodes.wake import parse_message


def test_a_ring_wakes_every_held_sync_of_its_node_and_no_other():
    async def scene() -> list[bool]:
        bells, bob, carol = Bells(), uuid4(), uuid4()
        with bells.hold(bob) as one, bells.hold(bob) as two, bells.hold(carol) as other:
            for_seconds = ((one, 5), (two, 5), (other, 0.2))
            waiting = [asyncio.create_task(bell.wait_for_ring(seconds)) for bell, seconds in for_seconds]
            await asyncio.sleep(0.05)
            bells.ring([bob, uuid4()])
            return [await task for task in waiting]

    assert asyncio.run(scene()) == [True, True, False]


def test_a_ring_before_the_waiting_counts_once():
    async def scene() -> tuple[bool, bool]:
        bells, bob = Bells(), uuid4()
        with bells.hold(bob) as bell:
            bells.ring([bob])
            return await bell.wait_for_ring(1), await bell.wait_for_ring(0.05)

    assert asyncio.run(scene()) == (True, False)


def test_a_sync_that_was_answered_leaves_nothing_behind():
    async def scene() -> Bells:
        bells = Bells()
        for _ in range(3):
            with bells.hold(uuid4()):
                assert bells.held == 1
        return bells

    bells = asyncio.run(scene())
    assert (bells.held, bells._bells) == (0, {})


def test_a_message_that_cannot_be_read_wakes_nobody():
    node_id = uuid4()
    assert parse_message(f'["{node_id}"]'.encode()) == [node_id]
    for rubbish in (b"", b"{", b"3", b"[1]", b'["x"]', b"\xff", b'{"a": 1}'):
        assert parse_message(rubbish) == []
