"""Replicas check each other's answers over real sockets: honest ones, a lazy one, a liar, and one that is dead."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from aiohttp import web

from jobs.gateway.accounting import auditing
from jobs.gateway.accounting.auditing import Auditor
from jobs.gateway.accounting.claims import Answered
from jobs.gateway.engines.upstream import Announced, UpstreamError
from jobs.gateway.inference_request import InferenceRequest
from jobs.gateway.messages import AuditRow, EndpointRow, KeyGrant, ReplicaRow

RIGHT = base64.b64encode(bytes(range(1, 255)) * 2).decode()
WRONG = base64.b64encode(bytes(range(2, 256)) * 2).decode()
ENDPOINT = UUID(int=5)


class Reply:
    """An answer that aiohttp got."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response, self.status, self.headers = response, response.status, ()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.content.iter_any():
            yield chunk

    async def close(self) -> None:
        self._response.close()


@dataclass
class Replica:
    """A real HTTP server that answers with the verdict that `says` returns."""

    says: Callable[[dict[str, Any]], Any]
    row: ReplicaRow
    capabilities: frozenset[str] = frozenset({"chat", "commits"})
    questions: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    session: aiohttp.ClientSession | None = None

    async def _check(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.questions.append(body)
        verdict = self.says(body)
        return web.Response(body=verdict) if isinstance(verdict, bytes) else web.json_response(verdict)

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post(auditing.CHECK_PATH, self._check)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.session = aiohttp.ClientSession()

    async def stop(self) -> None:
        await self.session.close()
        await self._runner.cleanup()

    async def request(self, method: str, path: str, headers: Any, body: bytes, *, seconds: float) -> Reply:
        try:
            timeout = aiohttp.ClientTimeout(seconds)
            return Reply(await self.session.request(method, self.url + path, data=body, timeout=timeout))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UpstreamError(str(error), is_sent=False) from error


class Town:
    """All replicas of the endpoint, by the tunnels and the table."""

    def __init__(self) -> None:
        self.replicas: dict[UUID, Replica] = {}

    async def add(self, says: Callable[[dict[str, Any]], Any], **more: Any) -> UUID:
        values = {"lease_id": uuid4(), "attempt_id": uuid4(), "endpoint_id": ENDPOINT, "version": 1, "state": "ready"}
        values |= {"node_id": uuid4(), "node_key": "ab" * 32, "provider_id": uuid4()}
        able = more.pop("capabilities", {"chat", "commits"})
        replica = Replica(says, ReplicaRow(**values | more), frozenset(able))
        await replica.start()
        self.replicas[replica.row.lease_id] = replica
        return replica.row.lease_id

    def announced(self) -> dict[UUID, Announced]:
        return {key: Announced(key, "souk", one.capabilities, 512) for key, one in self.replicas.items()}

    def upstream(self, lease_id: UUID) -> Replica | None:
        return self.replicas.get(lease_id)

    def replicas_of(self, endpoint_id: UUID) -> Sequence[ReplicaRow]:
        return [one.row for one in self.replicas.values() if one.row.endpoint_id == endpoint_id]


def in_town(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test's coroutine with a Town, which is its first argument."""

    async def run(*args: Any, **kwargs: Any) -> None:
        town = Town()
        try:
            await test(town, *args, **kwargs)
        finally:
            for one in town.replicas.values():
                await one.stop()

    def test_in_town(*args: Any, **kwargs: Any) -> None:
        asyncio.run(run(*args, **kwargs))

    functools.update_wrapper(test_in_town, test)
    signature = inspect.signature(test)
    test_in_town.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    del test_in_town.__wrapped__  # type: ignore[attr-defined]
    return test_in_town


def honest(body: dict[str, Any]) -> dict[str, Any]:
    """Knows which commitment is right."""
    is_right = all(answer["commitment"] == RIGHT for answer in body["answers"])
    choice = {"faults": [] if is_right else ["decoding"], "numbers": {"error_mean": 9.0}}
    return {"verdict": "match" if is_right else "mismatch", "choices": [choice]}


def lazy(body: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": "match", "choices": []}


def liar(body: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": "mismatch", "choices": [{"faults": ["decoding"], "numbers": {}}]}


def answered(lease_id: UUID, right: str | None = RIGHT, *, share: int = 100, **more: Any) -> Answered:
    """A stream that this replica answered."""
    now = time.time()
    grant = KeyGrant(
        key_id=uuid4(), key_hash="00", kind="endpoint", organisation_id=uuid4(), expires_at_ms=int(1000 * now) + 60_000
    )
    endpoint = EndpointRow(
        endpoint_id=ENDPOINT,
        job_id=uuid4(),
        organisation_id=grant.organisation_id,
        organisation="alice",
        model="llm",
        verify_share=share,
    )
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "souk_commit": True, "seed": 7}
    request = InferenceRequest(uuid4(), more.pop("kind", "chat"), body, True, grant, endpoint, 0.0, 60.0)
    claims = [{"index": 0, "output_ids": [1, 2], "commitment": right}] if right else None
    fields: dict[str, Any] = {"text": "hello", "whole": None, "commitment": claims, **more}
    return Answered(request, lease_id, body, **fields)


async def rows_of(auditor: Auditor, count: int) -> list[AuditRow]:
    """So many rows, once they are there."""
    task = asyncio.create_task(auditor.run())
    rows: list[AuditRow] = []
    try:
        async with asyncio.timeout(30):
            while len(rows) < count:
                await asyncio.sleep(0.01)
                rows += auditor.take_rows()
            await asyncio.sleep(0.05)  # there are no more
            return rows + auditor.take_rows()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def no_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn by chance; a test that wants a spoilt twin sets it."""
    monkeypatch.setattr(auditing, "SPOILT_ONE_IN", 1 << 60)


@in_town
async def test_a_right_answer_is_checked_by_another_node_as_the_engine_got_it(town: Town):
    bob, carol = await town.add(honest), await town.add(honest)
    auditor = Auditor(town, town)
    auditor.consider(given := answered(bob))
    (row,) = await rows_of(auditor, 1)
    assert (row.lease_id, row.checked_by, row.verdict) == (bob, carol, "match")
    assert not town.replicas[bob].questions
    (question,) = town.replicas[carol].questions
    assert question["kind"] == "chat" and "stream" not in question["request"]
    assert question["request"]["seed"] == given.body["seed"] and question["request"]["messages"]
    claim = {"index": 0, "text": "hello", "finish_reason": None, "output_ids": [1, 2], "commitment": RIGHT}
    assert question["answers"] == [claim]


@in_town
async def test_a_wrong_answer_is_shown_to_a_third(town: Town):
    mallory, *others = [await town.add(honest) for _ in range(3)]
    auditor = Auditor(town, town)
    auditor.consider(answered(mallory, WRONG))
    rows = await rows_of(auditor, 2)
    assert {(row.lease_id, row.checked_by, row.verdict) for row in rows} == {
        (mallory, other, "mismatch") for other in others
    }
    assert all("decoding" in row.detail and "error_mean" in row.detail for row in rows)


@in_town
async def test_without_a_third_it_is_unclear(town: Town):
    mallory, bob = await town.add(honest), await town.add(honest)
    auditor = Auditor(town, town)
    auditor.consider(answered(mallory, WRONG))
    (row,) = await rows_of(auditor, 1)
    assert (row.checked_by, row.verdict) == (bob, "unclear")


@in_town
async def test_who_calls_a_right_answer_wrong_is_outvoted(town: Town):
    bob, mallory = await town.add(honest), await town.add(liar)
    carol = await town.add(honest, provider_id=town.replicas[bob].row.provider_id)  # so Mallory is asked first
    auditor = Auditor(town, town)
    auditor.consider(answered(bob))
    rows = await rows_of(auditor, 2)
    assert [(row.checked_by, row.verdict) for row in rows] == [(mallory, "mismatch"), (carol, "match")]


@in_town
async def test_who_computes_nothing_calls_a_spoilt_answer_right(town: Town, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(auditing, "SPOILT_ONE_IN", 1)
    bob, mallory = await town.add(honest), await town.add(lazy)
    carol = await town.add(honest, provider_id=town.replicas[bob].row.provider_id)
    auditor = Auditor(town, town)
    auditor.consider(answered(bob))
    rows = await rows_of(auditor, 2)
    assert [(row.lease_id, row.checked_by, row.verdict) for row in rows] == [
        (mallory, mallory, "mismatch"),
        (bob, carol, "match"),
    ]
    assert len(town.replicas[carol].questions) == 2


@in_town
async def test_a_replica_that_does_not_commit_is_seen(town: Town):
    mallory = await town.add(honest)
    auditor = Auditor(town, town)
    auditor.consider(answered(mallory, None))
    auditor.consider(answered(mallory, None))
    rows = auditor.take_rows()
    assert [(row.lease_id, row.checked_by, row.detail) for row in rows] == [(mallory, mallory, "no commitment")] * 2
    claim = answered(mallory).commitment[0]
    for nonsense in ([{"index": "x"}, 7], [claim, claim | {"index": 1}], [{"index": 0}]):
        auditor.consider(answered(mallory, commitment=nonsense))
        assert [row.detail for row in auditor.take_rows()] == ["its commitment is not one"]
    big = [claim | {"output_ids": [1] * auditing.ITEM_BYTES_MAX}]
    auditor.consider(answered(mallory, commitment=big))
    assert len(auditor.take_rows()) == 1


@in_town
async def test_of_a_stream_of_several_choices_the_text_is_not_claimed(town: Town):
    bob, carol = await town.add(honest), await town.add(honest)
    auditor = Auditor(town, town)
    both = [{"index": index, "output_ids": [1], "commitment": RIGHT} for index in range(2)]
    given = answered(bob, commitment=both)
    auditor.consider(dataclasses.replace(given, body={**given.body, "n": 2}))
    await rows_of(auditor, 1)
    (question,) = town.replicas[carol].questions
    assert [(answer["index"], answer["text"]) for answer in question["answers"]] == [(0, None), (1, None)]


@pytest.mark.parametrize(
    "verdict", [b"<html>", b"[]", b'{"verdict":"maybe"}', b"x" * 100_000, b'{"verdict":["match"]}']
)
@in_town
async def test_an_invalid_verdict_is_ignored(town: Town, verdict: bytes):
    bob, mallory = await town.add(honest), await town.add(lambda _: verdict)
    carol = await town.add(honest, provider_id=town.replicas[bob].row.provider_id)
    auditor = Auditor(town, town)
    auditor.consider(answered(bob))
    (row,) = await rows_of(auditor, 1)
    assert (row.checked_by, row.verdict) == (carol, "match")
    assert town.replicas[mallory].questions


@pytest.mark.parametrize(
    "more", [{"version": 2}, {"state": "draining"}, {"capabilities": {"chat"}}, {"endpoint_id": UUID(int=6)}]
)
@in_town
async def test_only_who_serves_the_same_and_can_check_is_asked(town: Town, more: dict[str, Any]):
    bob = await town.add(honest)
    await town.add(honest, **more)
    await town.add(honest, node_id=town.replicas[bob].row.node_id)
    auditor = Auditor(town, town)
    auditor.consider(answered(bob))
    task = asyncio.create_task(auditor.run())
    async with asyncio.timeout(10):
        while not auditor.dropped:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not auditor.take_rows() and not any(one.questions for one in town.replicas.values())


@in_town
async def test_about_the_share_is_drawn_and_nobody_can_say_which(town: Town):
    mallory = await town.add(honest)
    requests = [answered(mallory, None, share=20) for _ in range(1000)]
    drawn = []
    for _ in range(2):
        auditor = Auditor(town, town)
        for request in requests:
            auditor.consider(request)
        drawn.append({row.request_id for row in auditor.take_rows()})
    assert all(130 < len(one) < 280 for one in drawn)
    assert drawn[0] != drawn[1]


@in_town
async def test_more_than_may_wait_is_let_go(town: Town):
    bob = await town.add(honest)
    auditor = Auditor(town, town)
    for _ in range(auditing.QUEUE_MAX + 7):
        auditor.consider(answered(bob))
    assert auditor.dropped == 7
    auditor.consider(answered(bob, kind="embedding"))
    assert auditor.dropped == 7
