"""Engines that speak HTTP and nothing else right: what they send to the byte, and what of it reaches a caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from jobs.gateway.answering.trying import Patience
from tests.integration.jobs.gateway.routing_scene import Caller, scene, until

PATIENT = Patience(first=10, token=10, move=10)  # no liar here hangs
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
QUESTION = [{"role": "user", "content": "Say something about otters, and take your time: I want to know all of it."}]


def token(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None} | more
    return b"data: " + json.dumps({"id": "x", "created": 1, "model": "m", "choices": [choice]}).encode() + b"\n\n"


class Liar:
    """Its port, whether it may answer, and of each answer whether it was read to its end."""

    def __init__(self) -> None:
        self.port = 0
        self.was_read_to_end: list[bool] = []
        self.may_speak = asyncio.Event()
        self.may_speak.set()


@asynccontextmanager
async def saying(pieces: Callable[[], Iterable[bytes]]) -> AsyncIterator[Liar]:
    """An engine that answers every request with these pieces once it may."""
    liar = Liar()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            writer.write(HEAD)
            at = len(liar.was_read_to_end)
            liar.was_read_to_end.append(False)
            await liar.may_speak.wait()
            for piece in pieces():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0 if at or len(piece) > 900 else 0.001)
            liar.was_read_to_end[at] = True
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        liar.port = server.sockets[0].getsockname()[1]
        yield liar
        server.close()


async def ask_both(it, liar: Liar, **how) -> tuple[Caller, str]:
    """What a caller gets where the liar has the request first and a good one is there, and the good one's answer."""
    liar.may_speak.clear()
    lease_id = it.replica(liar.port)
    work = asyncio.create_task(it.call(messages=QUESTION, stream=True, **how))
    await until(lambda: liar.was_read_to_end)
    await it.engine()
    liar.may_speak.set()
    caller = await work
    it.fleet.remove(lease_id)
    return caller, (await it.call(messages=QUESTION, stream=True)).text()


@pytest.mark.parametrize(
    "rubbish",
    [b"data: {not json}\n\n", b'data: {"choices": [{"ind', b"data: [3]\n\n", b'data: {"error": "gone"}\n\n', b""],
    ids=["no-json", "half-a-line", "no-object", "error", "end"],
)
def test_what_came_before_the_rubbish_is_sent_and_the_rubbish_is_not(rubbish):
    async def scenario():
        async with scene(patience=PATIENT) as it:
            good = await it.engine()
            streamed = (await it.call(messages=QUESTION, stream=True)).text()
            it.fleet.remove(good.lease_id)
            first, second = streamed.split(" ")[0], " " + streamed.split(" ")[1]
            async with saying(lambda: [token(first), token(second) + rubbish]) as liar:
                caller, expected = await ask_both(it, liar)
            assert caller.is_whole() and caller.text() == expected == streamed
            assert [used.output_tokens for used in it.used[1:3]] == [2, 18]

    asyncio.run(scenario())


def test_an_engine_that_writes_on_and_on_is_stopped_at_what_was_asked_for():
    async def scenario():
        async with scene(patience=PATIENT) as it:
            liar = await it.stack.enter_async_context(saying(lambda: (token(f" word{n}") for n in count())))
            it.replica(liar.port)
            caller = await it.call(messages=QUESTION, stream=True, max_tokens=30)
            assert caller.is_whole() and caller.events()[-2]["choices"][0]["finish_reason"] == "length"
            assert it.used[0].output_tokens == 30 and len(caller.events()) < 1000
            assert liar.was_read_to_end == [False]

    asyncio.run(scenario())


@pytest.mark.parametrize("piece", [token(""), b": ping\n\n" * 100, b"x" * 1000], ids=["empty", "comment", "no-line"])
def test_an_engine_that_only_seems_to_begin_is_left(piece):
    async def scenario():
        async with scene(patience=Patience(first=60, token=60)) as it:
            async with saying(lambda: (piece for _ in count())) as liar:
                caller, expected = await ask_both(it, liar)
                assert caller.is_whole() and caller.text() == expected and not any(liar.was_read_to_end)
            assert [used.status for used in it.used] == ["ok", "ok"]

    asyncio.run(scenario())


@pytest.mark.parametrize("figure", ["NaN", "-Infinity", "1e999"])
def test_a_figure_that_json_has_not_is_answered_by_another(figure):
    async def scenario():
        async with scene(patience=PATIENT) as it:
            whole = b'{"object": "list", "data": [{"index": 0, "embedding": [%b]}]}' % figure.encode()
            async with saying(lambda: [whole]) as liar:
                liar.may_speak.clear()
                it.replica(liar.port)
                work = asyncio.create_task(it.call("embedding", input="otter"))
                await until(lambda: liar.was_read_to_end)
                good = await it.engine()
                liar.may_speak.set()
                caller = await work
            assert b"NaN" not in caller.body and b"Infinity" not in caller.body
            assert [used.lease_id for used in it.used] == [good.lease_id]

    asyncio.run(scenario())


def test_after_the_finish_nothing_is_waited_for_long(monkeypatch):
    monkeypatch.setattr("jobs.gateway.answering.streaming.TAIL_SECONDS_MAX", 0.1)

    async def scenario():
        async with scene(patience=Patience(first=2, token=60)) as it:
            finish = token("", finish_reason="stop")
            pieces = [token("all")] + [finish] + [b": ping\n\n"] * 3
            async with saying(lambda: pieces) as liar:
                it.replica(liar.port)
                caller = await it.call(stream=True)
                assert caller.is_whole() and caller.text() == "all" and it.used[0].status == "ok"

    asyncio.run(scenario())


def test_tokens_cut_into_bytes_are_still_not_more_than_their_bytes():
    async def scenario():
        async with scene(patience=PATIENT) as it:
            usage = {"prompt_tokens": 10**9, "completion_tokens": 10**9, "total_tokens": 1}
            last = json.dumps({"choices": [], "usage": usage}).encode()
            pieces = [token(letter) for letter in "otter"]
            pieces += [token("", finish_reason="stop"), b"data: " + last + b"\n\n", b"data: [DONE]\n\n"]
            async with saying(lambda: pieces) as liar:
                it.replica(liar.port)
                caller = await it.call(stream=True, stream_options={"include_usage": True})
            assert caller.text() == "otter"
            assert it.used[0].output_tokens <= len("otter") + 16 and it.used[0].input_tokens < 1000
            assert caller.events()[-2]["usage"]["completion_tokens"] == it.used[0].output_tokens

    asyncio.run(scenario())


def test_a_place_that_comes_in_the_moment_of_leaving_goes_to_the_next():
    async def scenario():
        async with scene(in_flight=1) as it:
            await it.engine()
            pool, search = it.serving._pool, it.serving._begin(it.ask(), Caller()).search
            first = await pool.wait(search)
            leaving = asyncio.create_task(pool.wait(search))
            staying = asyncio.create_task(pool.wait(search))
            await asyncio.sleep(0.01)
            first.release()  # the place is handed to the one that leaves
            leaving.cancel()
            place = await staying
            place.release()
            assert leaving.cancelled() and it.is_quiet()

    asyncio.run(scenario())
