"""Replicas that die, hang and lie: what each caller gets, and that nobody pays twice."""

from __future__ import annotations

import asyncio

import pytest

from jobs.gateway.answering.trying import Patience
from jobs.gateway.errors import ApiError
from runtimes.contract import Capability
from tests.fakes.engine import EngineChild, Fault, Model, Pace
from tests.integration.jobs.gateway.routing_scene import ALL, Caller, scene, until

QUICK = Patience(first=2, token=2, move=2)  # longer than a busy computer stalls: who is well must not be given up
QUESTION = "Say something about otters, and take your time: I want to know all of it."
LONG = {"chat": {"messages": [{"role": "user", "content": QUESTION}]}, "completion": {"prompt": QUESTION}}  # both stay
BEFORE = [
    Fault("status", status=500),
    Fault("status", status=503),
    Fault("page", status=502),
    Fault("page", status=200),
    Fault("silent"),
    Fault("endless_headers"),
    Fault("endless_body"),
    Fault("no_http"),
    Fault("empty"),
    Fault("cut", tokens=0),
    Fault("end", tokens=0),
    Fault("hang", tokens=0),
    Fault("error", tokens=0),
    Fault("garbage", tokens=0),
]


@pytest.mark.parametrize("fault", BEFORE, ids=lambda fault: f"{fault.kind}-{fault.status}")
def test_what_fails_before_the_first_token_is_answered_by_another(fault):
    async def scenario():
        async with scene(patience=QUICK) as it:
            good, bad = await it.engine(), await it.engine()
            expected = (await it.call()).json()["choices"][0]["message"]["content"]
            for engine in (good, bad):  # the first one that gets a request fails
                engine.faults.add(Fault(fault.kind, status=fault.status, tokens=fault.tokens, times=1))
            bad.faults.clear() if good.stats.requests else good.faults.clear()
            for _ in range(3):
                caller = await it.call(stream=True)
                assert caller.is_whole() and caller.text() == expected
            assert [used.status for used in it.used] == ["ok"] * 4
            assert it.is_quiet()

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["cut", "end", "hang", "error", "garbage"])
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_stream_whose_replica_fails_goes_on_at_another_without_a_gap(fault, kind):
    async def scenario():
        async with scene(patience=QUICK) as it:
            engines = [await it.engine(pace=Pace(token_ms=1)) for _ in range(2)]
            body = LONG[kind] | {"stream": True, "max_tokens": 18}
            expected = (await it.call(kind, **body)).text()
            first = next(engine for engine in engines if engine.stats.requests)
            other = next(engine for engine in engines if engine is not first)
            first.faults.add(Fault(fault, tokens=7))
            caller = await it.call(kind, **body, stream_options={"include_usage": True})
            assert caller.text() == expected and caller.is_whole()
            assert len({event["id"] for event in caller.events()[:-1]}) == 1
            assert b": souk" in caller.body
            whole, lost, rest = it.used
            assert (lost.status, rest.status, lost.part, rest.part) == ("replica_lost", "ok", 0, 1)
            assert (lost.lease_id, rest.lease_id) == (first.lease_id, other.lease_id)
            assert lost.output_tokens + rest.output_tokens == whole.output_tokens == 18
            assert rest.input_tokens == 0 < lost.input_tokens
            assert caller.events()[-2]["usage"]["completion_tokens"] == 18
            asked = other.requests[-1]["body"]
            assert asked["max_tokens"] == 11 and asked["model"] == "fake"
            assert it.is_quiet()

    asyncio.run(scenario())


def test_a_replica_that_is_killed_in_the_middle_is_replaced():
    async def scenario():
        async with scene() as it:
            with EngineChild(port=None, token_ms=100, tokens=60) as doomed:
                lease_id = it.replica(doomed.port)
                callers = [Caller() for _ in range(8)]
                work = [asyncio.create_task(it.call(caller=caller, stream=True)) for caller in callers]
                await until(lambda: all(len(caller.pieces) > 5 for caller in callers))
                await it.engine(model=Model(answer_tokens=60))
                doomed.kill()
                it.fleet.remove(lease_id)
                await asyncio.gather(*work)
            expected = (await it.call(stream=True)).text()
            assert all(caller.is_whole() and caller.text() == expected for caller in callers)
            assert sum(used.output_tokens for used in it.used[:-1]) == 8 * 60
            assert {used.status for used in it.used if used.lease_id == lease_id} == {"replica_lost"}

    asyncio.run(scenario())


def test_a_stream_that_cannot_go_on_ends_with_an_error_and_without_done():
    async def scenario():
        for lacking, body in [(Capability.CONTINUES, {}), (None, {"logprobs": True}), (None, {"seed": 1, "n": 2})]:
            async with scene(patience=QUICK) as it:
                for _ in range(2):
                    engine = await it.engine(model=Model(capabilities=ALL - {lacking}))
                    engine.faults.add(Fault("cut", tokens=7))
                caller = await it.call(stream=True, **body)
                error = caller.events()[-1]["error"]
                assert (error["code"], error["type"]) == ("replica_lost", "server_error")
                assert caller.is_ended and not caller.is_whole() and caller.status == 200
                (used,) = it.used
                assert (used.status, used.output_tokens) == ("replica_lost", 7)
                (load,) = it.serving.loads()
                assert load.failed == 1 and it.is_quiet()

    asyncio.run(scenario())


def test_a_stream_that_loses_every_replica_says_so():
    async def scenario():
        async with scene(patience=QUICK) as it:
            for _ in range(5):
                (await it.engine()).faults.add(Fault("cut", tokens=3))
            caller = await it.call(stream=True)
            assert caller.events()[-1]["error"]["code"] == "replica_lost"
            assert [used.part for used in it.used] == [0, 1, 2, 3]
            assert sum(used.output_tokens for used in it.used) == 12
            assert it.is_quiet()

    asyncio.run(scenario())


def test_only_the_finish_was_lost_so_nothing_is_asked_again():
    async def scenario():
        async with scene(patience=QUICK) as it:
            engines = [await it.engine() for _ in range(2)]
            for engine in engines:
                engine.faults.add(Fault("end", tokens=5))
            caller = await it.call(stream=True, max_tokens=5)
            assert caller.is_whole() and caller.events()[-2]["choices"][0]["finish_reason"] == "length"
            assert sum(engine.stats.requests for engine in engines) == 1

    asyncio.run(scenario())


def test_every_replica_failing_is_an_error_that_may_be_tried_again():
    async def scenario():
        async with scene(patience=QUICK) as it:
            for _ in range(2):
                (await it.engine()).faults.add(Fault("page", status=500))
            with pytest.raises(ApiError) as failed:
                await it.call()
            error = failed.value
            assert (error.status, error.code, error.type) == (502, "replica_failed", "server_error")
            assert error.retry_after and "10.0.0.7" not in error.message
            assert [(used.status, used.output_tokens, used.input_tokens) for used in it.used] == [("failed", 0, 0)]
            assert it.is_quiet()

    asyncio.run(scenario())


def test_a_dead_engine_behind_an_open_way_is_put_aside_until_a_real_token(monkeypatch):
    monkeypatch.setattr("jobs.gateway.routing.replica_view.PROBE_SECONDS", 0.1)

    async def scenario():
        async with scene(patience=QUICK) as it:
            good, bad = await it.engine(), await it.engine()
            bad.faults.add(Fault("status", status=500))
            while (it_is := {load.lease_id: load for load in it.serving.replica_loads()})[bad.lease_id].is_ready:
                await it.call(messages=[{"role": "user", "content": "otter"}])
            assert "3 failures in a row" in it_is[bad.lease_id].why and "500" in it_is[bad.lease_id].why
            assert it_is[good.lease_id].is_ready
            asked = bad.stats.requests
            for _ in range(5):
                await it.call()
            assert bad.stats.requests == asked
            it.serving.loads()
            await asyncio.sleep(0.15)
            it.serving.loads()  # a probe is due, and fails
            await until(lambda: bad.stats.requests > asked)
            bad.faults.clear()

            def is_back():
                it.serving.loads()
                return all(load.is_ready for load in it.serving.replica_loads())

            await until(is_back)
            assert any(request["body"]["max_tokens"] == 1 for request in bad.requests)
            assert all(used.status == "ok" for used in it.used)

    asyncio.run(scenario())


def test_a_request_whose_time_is_up_is_ended_and_nobody_is_blamed():
    async def scenario():
        async with scene() as it:
            engine = await it.engine(pace=Pace(first_token_ms=60_000))
            with pytest.raises(ApiError) as late:
                await it.call(seconds=0.2)
            assert (late.value.status, late.value.code) == (504, "timeout")
            engine.pace = Pace(token_ms=500)
            caller = await it.call(seconds=3, stream=True)
            assert caller.events()[-1]["error"]["code"] == "timeout" and caller.is_ended
            assert [used.status for used in it.used] == ["timeout", "timeout"]
            assert it.used[0].output_tokens == 0 < it.used[1].output_tokens < 20
            assert all(load.is_ready and not load.failed for load in it.serving.replica_loads())
            await until(lambda: engine.stats.in_flight == 0)

    asyncio.run(scenario())


def test_the_loser_of_a_hedged_race_is_cancelled(monkeypatch):
    monkeypatch.setattr("jobs.gateway.routing.hedging.DELAY_SECONDS", 0.8)

    async def scenario(is_stream):
        async with scene() as it:
            slow, fast = await it.engine(), await it.engine()
            for engine in (slow, fast):
                engine.faults.add(Fault("silent", times=1))
            while not (slow.stats.requests or fast.stats.requests):
                work = asyncio.create_task(it.call(hedged=True, stream=is_stream))
                await until(lambda: slow.stats.in_flight + fast.stats.in_flight == 1)
                idle = fast if slow.stats.in_flight else slow
                idle.faults.clear()
                caller = await work
            assert caller.status == 200 and (caller.is_whole() if is_stream else caller.json())
            await until(lambda: slow.stats.in_flight + fast.stats.in_flight == 0)
            assert slow.stats.cancelled + fast.stats.cancelled == 1
            (used,) = it.used
            assert (used.status, used.lease_id) == ("ok", idle.lease_id)
            assert it.is_quiet()

    asyncio.run(scenario(True))
    asyncio.run(scenario(False))


def test_an_answer_in_one_piece_does_not_wait_for_a_dead_engine_to_its_deadline(monkeypatch):
    monkeypatch.setattr("jobs.gateway.routing.replica_view.PROBE_SECONDS", 0.01)
    monkeypatch.setattr("jobs.gateway.routing.replica_view.IDLE_SECONDS", 0.1)
    monkeypatch.setattr("jobs.gateway.answering.probing.PROBE_SECONDS_MAX", 0.1)

    async def scenario():
        async with scene() as it:
            dead = await it.engine()
            dead.faults.add(Fault("silent"))
            work = asyncio.create_task(it.call(seconds=600))
            await until(lambda: dead.stats.in_flight)
            await it.engine()

            def is_done():
                it.serving.loads()
                return work.done()

            await until(is_done)
            assert (await work).status == 200
            why = {load.lease_id: load.why for load in it.serving.replica_loads()}
            assert "no token" in why[dead.lease_id]

    asyncio.run(scenario())
