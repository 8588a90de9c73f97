"""What callers get from good engines, and what is counted."""

from __future__ import annotations

import asyncio

import pytest

from jobs.gateway.errors import ApiError
from runtimes.contract import Capability
from tests.fakes.engine import Fault, Model, Pace
from tests.integration.jobs.gateway.routing_scene import ALL, Caller, scene, until


def test_an_answer_in_one_piece_has_the_callers_model_name_and_is_metered_once():
    async def scenario():
        async with scene() as it:
            engine = await it.engine()
            request = it.ask()
            caller = Caller()
            await it.serving.answer(request, caller)
            answer = caller.json()
            assert (caller.status, answer["model"], answer["id"]) == (
                200,
                "otter",
                f"chatcmpl-{request.request_id.hex}",
            )
            assert answer["choices"][0]["message"]["content"]
            assert caller.headers[b"content-length"] == str(len(caller.body)).encode()
            (used,) = it.used
            assert (used.status, used.part, used.version, used.lease_id) == ("ok", 0, 1, engine.lease_id)
            assert used.output_tokens == answer["usage"]["completion_tokens"] == 20
            assert used.input_tokens == answer["usage"]["prompt_tokens"] > 0
            assert engine.requests[-1]["body"]["model"] == "fake"
            assert it.is_quiet()

    asyncio.run(scenario())


def test_a_stream_is_passed_on_with_one_id_and_counted_though_the_caller_did_not_ask():
    async def scenario():
        async with scene() as it:
            engine = await it.engine()
            whole = (await it.call()).json()["choices"][0]["message"]["content"]
            caller = await it.call(stream=True, user="u-1", logprobs=False, n=1, presence_penalty=0)
            events = caller.events()
            assert caller.is_whole() and caller.text() == whole
            assert len({(e["id"], e["model"], e["created"]) for e in events[:-1]}) == 1
            assert events[0]["model"] == "otter"
            assert not any("usage" in event for event in events[:-1])
            assert events[-2]["choices"][0]["finish_reason"] == "stop"
            assert (it.used[1].output_tokens, it.used[1].input_tokens) == (20, it.used[0].input_tokens)
            assert it.used[1].first_token_ms is not None
            body = engine.requests[-1]["body"]
            assert body["stream_options"] == {"include_usage": True}
            assert not {"user", "logprobs", "n", "presence_penalty"} & set(body)

    asyncio.run(scenario())


@pytest.mark.parametrize("can_count", [True, False])
def test_a_caller_who_asks_for_the_count_gets_it_from_every_engine(can_count):
    async def scenario():
        async with scene() as it:
            can = ALL if can_count else ALL - {Capability.STREAM_USAGE}
            engine = await it.engine(model=Model(capabilities=can))
            caller = await it.call(stream=True, stream_options={"include_usage": True}, max_tokens=7)
            *_, last, done = caller.events()
            assert done == "[DONE]" and last["choices"] == []
            assert last["usage"]["completion_tokens"] == it.used[0].output_tokens == 7
            assert ("stream_options" in engine.requests[-1]["body"]) is can_count

    asyncio.run(scenario())


def test_completions_and_embeddings_are_answered_too():
    async def scenario():
        async with scene() as it:
            await it.engine()
            text = (await it.call("completion", max_tokens=5)).json()["choices"][0]["text"]
            streamed = await it.call("completion", max_tokens=5, stream=True)
            assert text and streamed.text() == text and streamed.events()[0]["id"].startswith("cmpl-")
            answer = (await it.call("embedding", input=["one otter", "two otters"])).json()
            assert [row["index"] for row in answer["data"]] == [0, 1] and answer["model"] == "otter"
            assert (it.used[-1].input_tokens, it.used[-1].output_tokens) == (answer["usage"]["prompt_tokens"], 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("lacking", "body", "param"),
    [
        (Capability.TOOLS, {"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        (Capability.JSON_OBJECT, {"response_format": {"type": "json_object"}}, "response_format"),
        (Capability.JSON_SCHEMA, {"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        (Capability.LOGPROBS, {"logprobs": True}, "logprobs"),
        (Capability.MANY, {"n": 2}, "n"),
        (Capability.SEED, {"seed": 0}, "seed"),
        (Capability.PENALTIES, {"frequency_penalty": 0.5}, "frequency_penalty"),
        (Capability.CHAT, {}, "model"),
    ],
)
def test_what_no_engine_can_is_refused_by_name_and_asked_of_none(lacking, body, param):
    async def scenario():
        async with scene() as it:
            engine = await it.engine(model=Model(capabilities=ALL - {lacking}))
            with pytest.raises(ApiError) as refused:
                await it.call(**body)
            error = refused.value
            assert (error.status, error.code, error.param) == (400, "unsupported_parameter", param)
            assert "fake" in error.message and engine.stats.requests == 0 and it.used == []

    asyncio.run(scenario())


def test_a_request_goes_to_the_one_replica_that_can():
    async def scenario():
        async with scene() as it:
            plain = await it.engine(model=Model(capabilities=ALL - {Capability.SEED}))
            able = await it.engine()
            for _ in range(6):
                await it.call(seed=7)
            assert (plain.stats.requests, able.stats.requests) == (0, 6)

    asyncio.run(scenario())


def test_what_is_too_long_is_refused_in_openais_words_by_us_or_by_the_engine():
    async def scenario():
        async with scene(max_tokens=100) as it:
            engine = await it.engine(model=Model(context=64))
            for body, code, param in [
                ({"max_tokens": 101}, "invalid_value", "max_tokens"),
                ({"max_tokens": 70}, "context_length_exceeded", "max_tokens"),
                ({"messages": [{"role": "user", "content": "x" * 64 * 200}]}, "context_length_exceeded", "messages"),
            ]:
                with pytest.raises(ApiError) as refused:
                    await it.call(**body)
                assert (refused.value.status, refused.value.code, refused.value.param) == (400, code, param)
            assert engine.stats.requests == 0
            with pytest.raises(ApiError) as refused:
                await it.call(messages=[{"role": "user", "content": "otter " * 80}], max_tokens=20)
            assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
            assert engine.stats.requests == 1 and it.is_quiet()
            (load,) = it.serving.replica_loads()
            assert load.is_ready and load.failed == 0
            await it.call()  # no bound was requested, so it is what the context leaves

    asyncio.run(scenario())


def test_a_count_beyond_what_was_seen_is_not_believed():
    async def scenario():
        async with scene() as it:
            engine = await it.engine()
            honest = await it.call(max_tokens=10)
            engine.faults.add(Fault("usage", factor=1000))
            lied = await it.call(max_tokens=10)
            assert honest.json()["usage"]["completion_tokens"] == 10
            assert lied.json()["usage"]["completion_tokens"] == it.used[1].output_tokens == 10
            assert it.used[1].input_tokens < 600 < 1000 * it.used[0].input_tokens
            engine.faults.add(Fault("no_usage"))
            silent = await it.call(stream=True, max_tokens=10)
            assert silent.is_whole() and it.used[2].output_tokens == 10 and it.used[2].input_tokens > 0

    asyncio.run(scenario())


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_caller_who_hangs_up_stops_the_engine_and_pays_for_what_came(is_stream):
    async def scenario():
        async with scene() as it:
            engine = await it.engine(model=Model(answer_tokens=1000), pace=Pace(token_ms=5))
            caller = Caller(leaves_after=5 if is_stream else None)
            work = asyncio.create_task(it.call(caller=caller, stream=is_stream))
            if not is_stream:
                await until(lambda: engine.stats.in_flight)
                caller.gone.set()
            await work
            await until(lambda: engine.stats.in_flight == 0)
            assert engine.stats.cancelled == 1 and not caller.is_ended
            (used,) = it.used
            assert used.status == "cancelled" and (4 <= used.output_tokens < 100) is is_stream
            assert it.is_quiet()

    asyncio.run(scenario())


def test_a_caller_who_reads_slowly_holds_the_engine_back_and_not_our_memory():
    async def scenario():
        async with scene(max_tokens=60_000) as it:
            engine = await it.engine(model=Model(answer_tokens=60_000))
            caller = Caller(slowly=0.1)
            work = asyncio.create_task(it.call(caller=caller, stream=True))
            await asyncio.sleep(1)
            written = engine.stats.tokens_out
            caller.gone.set()
            await work
            assert written < 60_000 and sum(map(len, caller.pieces)) < 2_000_000

    asyncio.run(scenario())
