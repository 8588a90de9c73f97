"""Items of one batch: how many at once, whose errors, and what is left of callers that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from jobs.sync.batch_loader import BATCH_MAX, BatchLoader


class Oracle:
    """Doubles numbers, a batch at a time; knows nothing of odd ones, and breaks at negative ones."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.is_open = asyncio.Event()

    async def load_all(self, questions: Sequence[int]) -> Mapping[int, int]:
        self.batches.append(list(questions))
        await self.is_open.wait()
        if min(questions) < 0:
            raise ValueError("a negative number")
        return {number: 2 * number for number in questions if number % 2 == 0}


def test_the_first_goes_out_at_once_and_what_comes_meanwhile_goes_together():
    async def scene() -> tuple[list[int | None], list[list[int]]]:
        oracle = Oracle()
        loader = BatchLoader[int, int](oracle.load_all)
        asking = [asyncio.create_task(loader.load(number)) for number in (2,)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking += [asyncio.create_task(loader.load(number)) for number in (4, 5, 6)]
        await asyncio.sleep(0)
        oracle.is_open.set()
        return [await task for task in asking], oracle.batches

    assert asyncio.run(scene()) == ([4, 8, None, 12], [[2], [4, 5, 6]])


def test_a_batch_has_a_limit():
    async def scene() -> list[int]:
        oracle = Oracle()
        oracle.is_open.set()
        loader = BatchLoader[int, int](oracle.load_all)
        await asyncio.gather(*(loader.load(number) for number in range(2 * BATCH_MAX + 1)))
        return [len(batch) for batch in oracle.batches]

    sizes = asyncio.run(scene())
    assert sum(sizes) == 2 * BATCH_MAX + 1
    assert max(sizes) <= BATCH_MAX


def test_an_error_is_that_of_its_batch_and_the_next_one_is_answered():
    async def scene() -> list[int | None]:
        oracle = Oracle()
        oracle.is_open.set()
        loader = BatchLoader[int, int](oracle.load_all)
        for _ in range(2):
            with pytest.raises(ValueError, match="negative"):
                await loader.load(-1)
        return [await loader.load(8)]

    assert asyncio.run(scene()) == [16]


def test_who_leaves_while_the_question_is_out_takes_nobody_along():
    async def scene() -> int | None:
        oracle = Oracle()
        loader = BatchLoader[int, int](oracle.load_all)
        leaving, staying = asyncio.create_task(loader.load(2)), asyncio.create_task(loader.load(4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        oracle.is_open.set()
        return await asyncio.wait_for(staying, 5)

    assert asyncio.run(scene()) == 8


def test_a_loader_that_is_stopped_leaves_nobody_waiting():
    async def scene() -> list[bool]:
        oracle = Oracle()
        loader = BatchLoader[int, int](oracle.load_all)
        asked = [asyncio.create_task(loader.load(number)) for number in (2, 4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert loader._task is not None
        loader._task.cancel()
        await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)
        return [task.cancelled() for task in asked]

    assert asyncio.run(scene()) == [True, True]


def test_an_error_reaches_only_those_who_still_wait():
    async def scene() -> BaseException | None:
        oracle = Oracle()
        loader = BatchLoader[int, int](oracle.load_all)
        leaving, staying = asyncio.create_task(loader.load(-2)), asyncio.create_task(loader.load(-4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        oracle.is_open.set()
        await asyncio.wait([staying], timeout=5)
        return staying.exception()

    assert isinstance(asyncio.run(scene()), ValueError)
