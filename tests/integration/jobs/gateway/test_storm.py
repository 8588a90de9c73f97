"""Many callers, some of whom leave, and replicas that fail in every way: nothing leaks, every caller is answered."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from jobs.gateway.answering.trying import Patience
from jobs.gateway.errors import ApiError
from tests.fakes.engine import Fault, Model, Pace
from tests.integration.jobs.gateway.routing_scene import Caller, scene, until

KINDS = ["cut", "end", "error", "garbage", "hang", "status", "page", "silent", "no_http", "empty", "slow", "no_usage"]
QUESTION = "Say something about otters, and take your time: I want to know all of it."
QUIET_SECONDS = (
    60  # what was begun for a request may go on for as long as the request may take: 10 s, on an idle machine
)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_leaves_nothing_behind_and_every_caller_gets_an_end(seed, monkeypatch):
    monkeypatch.setattr("jobs.gateway.routing.replica_view.PROBE_SECONDS", 0.05)
    monkeypatch.setattr("jobs.gateway.answering.probing.PROBE_SECONDS_MAX", 0.5)
    dice = random.Random(seed)

    async def one(it, caller, number):
        how = {"stream": dice.random() < 0.7, "hedged": dice.random() < 0.2, "seconds": dice.choice([0.3, 10, 10, 10])}
        request = it.ask(key=f"key {number % 7}", messages=[{"role": "user", "content": QUESTION}], **how)
        await asyncio.sleep(dice.random())
        if dice.random() < 0.2:
            asyncio.get_running_loop().call_later(dice.random() * 0.3, caller.gone.set)
        try:
            await it.serving.answer(request, caller)
        except ApiError as error:
            return request, error
        return request, None

    async def weather(it, engines):
        for _ in range(30):
            engine = dice.choice(engines)
            engine.faults.clear()
            engine.faults.add(Fault(dice.choice(KINDS), tokens=dice.randrange(20), ms=50, times=dice.choice([1, 2, 4])))
            it.serving.loads()
            await asyncio.sleep(0.02)
        for engine in engines:
            engine.faults.clear()

    async def scenario():
        async with scene(patience=Patience(first=0.3, token=0.3, move=2), in_flight=8) as it:
            engines = [await it.engine(model=Model(answer_tokens=20), pace=Pace(token_ms=1)) for _ in range(4)]
            expected = (await it.call(messages=[{"role": "user", "content": QUESTION}])).json()
            text = expected["choices"][0]["message"]["content"]
            it.used.clear()
            callers = [Caller() for _ in range(100)]
            work = [one(it, caller, number) for number, caller in enumerate(callers)]
            *outcomes, _ = await asyncio.gather(*work, weather(it, engines))
            check(callers, outcomes, text)
            check_used(
                it.used,
                callers,
                outcomes,
                dict(zip([request.request_id for request, _ in outcomes], callers, strict=True)),
            )
            await until(it.is_quiet, QUIET_SECONDS)
            await until(lambda: not any(engine.stats.in_flight for engine in engines), QUIET_SECONDS)
            assert len(it.used) == len({(used.request.request_id, used.part) for used in it.used})

    def check(callers, outcomes, text):
        whole = 0
        for caller, (request, error) in zip(callers, outcomes, strict=True):
            if error is not None:
                assert not caller.has_started and error.status in (429, 502, 503, 504)
            elif caller.gone.is_set() and not caller.is_ended:
                continue
            elif request.is_stream:
                assert caller.is_ended and (caller.is_whole() or "error" in caller.events()[-1])
                assert text.startswith(caller.text())
                assert not caller.is_whole() or caller.text() == text
                whole += caller.is_whole()
            else:
                assert caller.json()["choices"][0]["message"]["content"] == text
                whole += 1
        assert whole

    def check_used(used, callers, outcomes, by_request):
        parts = defaultdict(list)
        for row in used:
            parts[row.request.request_id].append(row)
        for request_id, rows in parts.items():
            assert [row.part for row in rows] == list(range(len(rows)))
            assert all(row.status == "replica_lost" for row in rows[:-1])
            assert all(row.input_tokens == 0 for row in rows[1:])
            caller = by_request[request_id]
            if caller.is_ended and rows[0].request.is_stream and caller.is_whole():
                assert sum(row.output_tokens for row in rows) == 20
        for request, error in outcomes:
            if error is None and request.request_id not in parts:
                assert by_request[request.request_id].gone.is_set()  # it left before any replica was asked

    asyncio.run(scenario())
