"""Requests for which there is no replica, or none with free capacity: who waits, how long, and with which answer."""

from __future__ import annotations

import asyncio

import pytest

from jobs.gateway.errors import ApiError
from jobs.gateway.messages import VersionRow
from jobs.gateway.routing import fair_queue
from tests.fakes.engine import Pace
from tests.integration.jobs.gateway.routing_scene import Caller, scene, until


def test_a_request_to_a_sleeping_endpoint_wakes_it_and_is_answered_when_it_is_there():
    async def scenario():
        async with scene() as it:
            work = asyncio.create_task(it.call())
            await until(lambda: it.wanted)
            assert it.wanted == [it.fleet.row.endpoint_id]
            (load,) = it.serving.loads()
            assert (load.is_wanted, load.queued, load.in_flight, load.arrived) == (True, 1, 0, 1)
            await it.engine()
            caller = await work
            assert caller.status == 200 and it.used[0].queue_ms > 0
            (load,) = it.serving.loads()
            assert (load.is_wanted, load.queued, load.arrived) == (False, 0, 0) and load.queue_seconds_max > 0

    asyncio.run(scenario())


def test_nobody_comes_in_time_is_a_503_that_says_when_to_try_again():
    async def scenario():
        async with scene(wake_seconds=0.1) as it:
            caller = Caller()
            with pytest.raises(ApiError) as refused:
                await it.call(caller=caller, stream=True)
            assert (refused.value.status, refused.value.code) == (503, "model_not_ready")
            assert refused.value.retry_after and not caller.has_started and it.used == []
            (load,) = it.serving.loads()
            assert (load.refused, load.queued) == (1, 0)

    asyncio.run(scenario())


def test_no_replica_gets_more_at_once_than_its_limit_and_everybody_is_served():
    async def scenario():
        async with scene(in_flight=3) as it:
            engines = [await it.engine(pace=Pace(first_token_ms=10)) for _ in range(2)]
            callers = await asyncio.gather(*(it.call(key=f"key {n % 5}", stream=n % 2 == 0) for n in range(60)))
            assert all(caller.status == 200 for caller in callers)
            assert [engine.stats.in_flight_max for engine in engines] == [3, 3]
            assert len(it.used) == 60 and it.is_quiet()

    asyncio.run(scenario())


def test_a_full_queue_is_a_429_with_a_time_to_come_back(monkeypatch):
    monkeypatch.setattr(fair_queue, "QUEUED_MAX", 4)

    async def scenario():
        async with scene(in_flight=1) as it:
            await it.engine(pace=Pace(first_token_ms=50))
            results = await asyncio.gather(*(it.call() for _ in range(10)), return_exceptions=True)
            refused = [result for result in results if isinstance(result, ApiError)]
            assert len(refused) == 5 and len(it.used) == 5
            assert {(error.status, error.code) for error in refused} == {(429, "model_busy")}
            assert all(error.retry_after >= 1 for error in refused)
            (load,) = it.serving.loads()
            assert (load.arrived, load.refused) == (10, 5)

    asyncio.run(scenario())


def test_one_key_with_many_requests_does_not_starve_another():
    async def scenario():
        async with scene(in_flight=1) as it:
            engine = await it.engine(pace=Pace(first_token_ms=5))
            crowd = [asyncio.create_task(it.call(key="mallory")) for _ in range(50)]
            await until(lambda: engine.stats.requests >= 3)
            await it.call(key="alice")
            assert engine.stats.requests < 10
            await asyncio.gather(*crowd)

    asyncio.run(scenario())


def test_a_caller_who_hangs_up_in_the_queue_leaves_it():
    async def scenario():
        async with scene(in_flight=1) as it:
            engine = await it.engine(pace=Pace(first_token_ms=2000))  # the second is in the queue well before that
            first, second = asyncio.create_task(it.call()), Caller()
            await until(lambda: engine.stats.in_flight)
            work = asyncio.create_task(it.call(caller=second))
            await until(lambda: it.serving.loads()[0].queued == 1)
            second.gone.set()
            await work
            assert it.serving.loads()[0].queued == 0
            await first
            assert engine.stats.requests == 1 and [used.status for used in it.used] == ["ok"]

    asyncio.run(scenario())


def test_the_versions_get_their_shares_and_a_conversation_stays_with_its_version():
    async def scenario():
        async with scene(versions=((1, 80), (2, 20)), in_flight=500) as it:
            old, new = await it.engine(version=1), await it.engine(version=2)
            for number in range(200):
                await it.call(messages=[{"role": "user", "content": f"question {number}"}])
            assert 15 <= new.stats.requests <= 75
            before = new.stats.requests, old.stats.requests
            talk = [{"role": "user", "content": "question 7"}]
            for _ in range(5):
                answer = (await it.call(messages=talk)).json()["choices"][0]["message"]
                talk = [*talk, answer, {"role": "user", "content": "and then?"}]
            grown = new.stats.requests - before[0], old.stats.requests - before[1]
            assert sorted(grown) == [0, 5]
            it.fleet.row = it.fleet.row.model_copy(update={"versions": [VersionRow(version=1, share=100)]})
            before_new = new.stats.requests
            for number in range(20):
                await it.call(messages=[{"role": "user", "content": f"question {number}"}])
            assert new.stats.requests == before_new

    asyncio.run(scenario())


def test_a_draining_replica_gets_nothing_new_and_ends_what_it_has():
    async def scenario():
        async with scene(wake_seconds=0.1) as it:
            old = await it.engine(pace=Pace(token_ms=50))
            caller = Caller()
            work = asyncio.create_task(it.call(caller=caller, stream=True))
            await until(lambda: caller.pieces)
            it.fleet.rows[0] = it.fleet.rows[0].model_copy(update={"state": "draining"})
            with pytest.raises(ApiError):
                await it.call()
            new = await it.engine()
            await it.call()
            await work
            assert caller.is_whole() and (old.stats.requests, new.stats.requests) == (1, 1)

    asyncio.run(scenario())


def test_the_same_beginning_goes_to_the_same_replica_while_it_has_room():
    async def scenario():
        async with scene(in_flight=4) as it:
            engines = [await it.engine() for _ in range(4)]
            start = {"role": "system", "content": "You are an otter. " * 200}
            for number in range(12):
                await it.call(messages=[start, {"role": "user", "content": f"question {number}"}])
            assert sorted(engine.stats.requests for engine in engines) == [0, 0, 0, 12]
            for engine in engines:
                engine.pace = Pace(first_token_ms=100)
            await asyncio.gather(
                *(it.call(messages=[start, {"role": "user", "content": f"{number}"}]) for number in range(12))
            )
            assert sum(engine.stats.requests > 0 for engine in engines) >= 3

    asyncio.run(scenario())
