"""A gateway's answering part with real engines behind real sockets, and callers that note what they get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import aiohttp

from jobs.gateway.answering.serving import Serving
from jobs.gateway.answering.trying import Patience
from jobs.gateway.engines.upstream import Announced, UpstreamError
from jobs.gateway.inference_request import ClientGone, Header, InferenceRequest, Kind, Used
from jobs.gateway.messages import EndpointLimits, EndpointRow, KeyGrant, ReplicaRow, VersionRow
from runtimes.contract import Capability
from tests.fakes.engine import Model, Pace, serving

ALL = frozenset(Capability)
HEAD_BYTES_MAX = 16 * 1024


class HttpAnswer:
    """An engine's answer as aiohttp has it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(f"broke off: {error}", is_sent=True) from error

    async def close(self) -> None:
        self._response.close()


class HttpUpstream:
    """A plain connection to an engine."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self._url = session, f"http://127.0.0.1:{port}"

    async def request(
        self, method: str, path: str, headers: Sequence[Header], body: bytes, *, seconds: float
    ) -> HttpAnswer:
        named = {name.decode(): value.decode() for name, value in headers}
        try:
            async with asyncio.timeout(seconds):
                return HttpAnswer(await self._session.request(method, self._url + path, headers=named, data=body))
        except TimeoutError:
            raise UpstreamError(f"no answer within {seconds} s", is_sent=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(str(error) or type(error).__name__, is_sent=True) from error


class Fleet:
    """Replicas and directory in one: what can be reached, and the marketplace's rows of it."""

    def __init__(self, endpoint: EndpointRow) -> None:
        self.row = endpoint
        self.rows: list[ReplicaRow] = []
        self.here: dict[UUID, Announced] = {}
        self.ways: dict[UUID, HttpUpstream] = {}

    def announced(self) -> Mapping[UUID, Announced]:
        return dict(self.here)

    def upstream(self, lease_id: UUID) -> HttpUpstream | None:
        return self.ways.get(lease_id)

    def endpoint(self, endpoint_id: UUID) -> EndpointRow | None:
        return self.row if endpoint_id == self.row.endpoint_id else None

    def replicas_of(self, endpoint_id: UUID) -> Sequence[ReplicaRow]:
        return list(self.rows) if endpoint_id == self.row.endpoint_id else []

    def add(self, way: HttpUpstream, *, can: Iterable[str] = ALL, version: int = 1, context: int | None = None) -> UUID:
        """A replica is announced."""
        lease_id = uuid4()
        self.rows.append(
            ReplicaRow(
                lease_id=lease_id,
                attempt_id=uuid4(),
                endpoint_id=self.row.endpoint_id,
                version=version,
                node_id=uuid4(),
                node_key="",
                state="ready",
            )
        )
        self.ways[lease_id] = way
        details = {"served_as": "fake"}
        self.here[lease_id] = Announced(lease_id, "fake", frozenset(map(str, can)), context, details)
        return lease_id

    def remove(self, lease_id: UUID) -> None:
        """Its tunnel is gone."""
        del self.here[lease_id], self.ways[lease_id]


class Caller:
    """Somebody who waits for an answer; `slowly`: seconds before each piece is taken."""

    def __init__(self, *, slowly: float = 0, leaves_after: int | None = None) -> None:
        self.has_started = False
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.is_ended = False
        self._slowly, self._leaves_after = slowly, leaves_after
        self.gone = asyncio.Event()

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        assert not self.has_started
        self.has_started, self.status, self.headers = True, status, dict(headers)

    async def send(self, chunk: bytes) -> None:
        if self.gone.is_set():
            raise ClientGone
        if self._slowly:
            await asyncio.sleep(self._slowly)
        self.pieces.append(chunk)
        if self._leaves_after is not None and len(self.pieces) >= self._leaves_after:
            self.gone.set()

    async def end(self) -> None:
        assert not self.is_ended
        self.is_ended = True

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.send(body)
        await self.end()

    async def until_gone(self) -> None:
        await self.gone.wait()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The data of the stream's events, [DONE] as it is."""
        found = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return ["[DONE]" if data == b"[DONE]" else json.loads(data) for data in found]

    def text(self) -> str:
        """The text of a stream."""
        parts = []
        for event in self.events():
            for choice in event.get("choices", ()) if isinstance(event, dict) else ():
                parts.append(choice.get("delta", {}).get("content") or choice.get("text") or "")
        return "".join(parts)

    def is_whole(self) -> bool:
        """It ended as a stream ends that lacks nothing."""
        return self.is_ended and self.events()[-1] == "[DONE]"


@dataclass
class Scene:
    """All of it."""

    fleet: Fleet
    serving: Serving
    stack: AsyncExitStack
    session: aiohttp.ClientSession
    used: list[Used]
    wanted: list[UUID]
    keys: dict[str, KeyGrant] = field(default_factory=dict)

    async def engine(self, *, version: int = 1, model: Model | None = None, pace: Pace | None = None) -> Any:
        """One more replica, in this process."""
        model = model or Model()
        engine: Any = await self.stack.enter_async_context(serving(model=model, pace=pace))
        engine.lease_id = self.replica(engine.port, can=model.capabilities, version=version, context=model.context)
        return engine

    def replica(self, port: int, **what: Any) -> UUID:
        """One more, wherever it is."""
        return self.fleet.add(HttpUpstream(self.session, port), **what)

    def ask(
        self, kind: Kind = "chat", *, key: str = "alice", seconds: float = 30, hedged: bool = False, **body: Any
    ) -> InferenceRequest:
        """A request as the frontend passes it on."""
        default: dict[str, Any] = {"messages": [{"role": "user", "content": "Say something about otters."}]}
        if kind != "chat":
            default = {"prompt": "Once"} if kind == "completion" else {"input": "otter"}
        endpoint, now = self.fleet.row, asyncio.get_running_loop().time()
        whole = {"model": endpoint.model, **default, **body}
        if kind != "embedding":
            whole.setdefault("max_tokens", endpoint.limits.max_tokens)
        if key not in self.keys:
            self.keys[key] = KeyGrant(
                key_id=uuid4(), key_hash=key, kind="endpoint", organisation_id=uuid4(), expires_at_ms=1 << 50
            )
        return InferenceRequest(
            request_id=uuid4(),
            kind=kind,
            body=whole,
            is_stream=bool(body.get("stream")),
            grant=self.keys[key],
            endpoint=endpoint,
            received_at=now,
            deadline=now + seconds,
            is_hedged=hedged,
        )

    async def call(self, kind: Kind = "chat", *, caller: Caller | None = None, **how: Any) -> Caller:
        """Send a request and wait for the answer."""
        caller = caller or Caller()
        await self.serving.answer(self.ask(kind, **how), caller)
        return caller

    def is_quiet(self) -> bool:
        """Nothing is under way any more."""
        return all(load.in_flight == 0 and load.queued == 0 for load in self.serving.loads()) and all(
            load.in_flight == 0 for load in self.serving.replica_loads()
        )


@asynccontextmanager
async def scene(*, patience: Patience | None = None, versions: Sequence[tuple[int, int]] = ((1, 100),), **limits: Any):
    """An endpoint without replicas so far."""
    row = EndpointRow(
        endpoint_id=uuid4(),
        job_id=uuid4(),
        organisation_id=uuid4(),
        organisation="bob",
        model="otter",
        versions=[VersionRow(version=version, share=share) for version, share in versions],
        limits=EndpointLimits(**limits),
    )
    used: list[Used] = []
    wanted: list[UUID] = []
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), read_bufsize=16384
            )
        )
        fleet = Fleet(row)
        made = Serving(fleet, fleet, used.append, on_wanted=wanted.append, patience=patience)
        stack.push_async_callback(made.close)
        yield Scene(fleet, made, stack, session, used, wanted)


async def until(true: Any, seconds: float = 10) -> None:
    """Wait for something that must come."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)
