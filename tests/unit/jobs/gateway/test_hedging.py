"""Two tries side by side: whatever ends them, exactly what is returned stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jobs.gateway.routing import hedging

SOON = 0.03


class Tries:
    """Two tries whose ends a test decides; `dropped` are the results that were closed."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ends: list[asyncio.Future[str]] = [loop.create_future(), loop.create_future()]
        self.begun: list[int] = []
        self.dropped: list[str] = []
        self.stops_slowly: asyncio.Future[None] = loop.create_future()

    def begin(self, number: int) -> Awaitable[str]:
        async def answer() -> str:
            self.begun.append(number)
            try:
                return await self.ends[number]
            except asyncio.CancelledError:
                await self.stops_slowly
                raise

        return answer()

    async def drop(self, result: str) -> None:
        self.dropped.append(result)

    def race(self) -> asyncio.Task[str]:
        return asyncio.create_task(hedging.race(lambda: self.begin(0), lambda: self.begin(1), SOON, self.drop))


async def settle(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.001)


def test_a_result_that_comes_as_the_caller_leaves_is_dropped():
    async def scenario():
        tries = Tries()
        race = tries.race()
        await settle(lambda: tries.begun == [0])
        tries.ends[0].set_result("first")
        race.cancel()
        with pytest.raises(asyncio.CancelledError):
            await race
        await settle(lambda: tries.dropped == ["first"])

    asyncio.run(scenario())


def test_the_winner_is_not_lost_while_the_other_is_stopped():
    async def scenario():
        tries = Tries()
        race = tries.race()
        await settle(lambda: tries.begun == [0, 1])
        tries.ends[1].set_result("second")
        await asyncio.sleep(SOON)
        assert race.done(), "nobody waits until the other has stopped"
        assert await race == "second"
        tries.stops_slowly.set_result(None)
        await asyncio.sleep(SOON)
        assert tries.dropped == []

    asyncio.run(scenario())


def test_of_two_results_at_once_one_is_returned_and_the_other_dropped():
    async def scenario():
        tries = Tries()
        race = tries.race()
        await settle(lambda: tries.begun == [0, 1])
        tries.ends[0].set_result("first")
        tries.ends[1].set_result("second")
        assert await race == "first"
        await settle(lambda: tries.dropped == ["second"])

    asyncio.run(scenario())


def test_where_both_fail_the_first_ones_error_is_raised():
    async def scenario():
        tries = Tries()
        race = tries.race()
        await settle(lambda: tries.begun == [0, 1])
        tries.ends[1].set_exception(ValueError("second"))
        tries.ends[0].set_exception(KeyError("first"))
        with pytest.raises(KeyError):
            await race
        assert tries.dropped == []

    asyncio.run(scenario())
