"""A gateway as it is, between a marketplace that answers what a test wants and an engine that answers at once.

The marketplace is a real HTTP server that speaks /internal/gateway/v1; the engine is the smallest honest `Answering`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy

from jobs.gateway.accounting.metering import Metering
from jobs.gateway.answering.serving import Serving
from jobs.gateway.config import GatewayConfig
from jobs.gateway.engines.upstream import Replicas
from jobs.gateway.frontend.connections import Server
from jobs.gateway.inference_request import Client, ClientGone, InferenceRequest, Used
from jobs.gateway.messages import (
    EndpointRow,
    GatewaySync,
    KeyGrant,
    KeyQuestion,
    ReplicaRow,
    Table,
    UsageRow,
    VersionRow,
)
from jobs.gateway.process import Backend, Parts, build

TOKEN = "gateways-token"
FAR = 4_000_000_000_000  # unix milliseconds

ALICE, BOB = UUID(int=1), UUID(int=2)  # organisations


def key_of(name: str) -> str:
    return f"sk-souk-{name:x<40}"


def grant_for(name: str, organisation_id: UUID = ALICE, **fields: Any) -> KeyGrant:
    """What the holder of `key_of(name)` may do."""
    fields = {
        "expires_at_ms": FAR,
        "kind": "endpoint",
        "key_id": UUID(int=abs(hash(name)) + 1000),
        "foreign_usd_micros": 10**9,
    } | fields
    key_hash = sha256(key_of(name).encode()).hexdigest()
    return KeyGrant(key_hash=key_hash, organisation_id=organisation_id, **fields)


def endpoint_for(model: str, organisation_id: UUID = ALICE, **fields: Any) -> EndpointRow:
    fields = {
        "organisation": {ALICE: "alice", BOB: "bob"}[organisation_id],
        "endpoint_id": uuid4(),
        "job_id": uuid4(),
        "versions": [VersionRow(version=1, share=100)],
        "input_usd_micros_per_million": 1_000_000,
        "output_usd_micros_per_million": 2_000_000,
    } | fields
    return EndpointRow(model=model, organisation_id=organisation_id, **fields)


@dataclass
class Marketplace:
    """What it knows, and what it received."""

    endpoints: list[EndpointRow] = field(default_factory=list)
    replicas: list[ReplicaRow] = field(default_factory=list)
    grants: dict[str, KeyGrant] = field(default_factory=dict)  # by hash
    usage: list[UsageRow] = field(default_factory=list)
    syncs: list[GatewaySync] = field(default_factory=list)
    questions: list[list[str]] = field(default_factory=list)
    version: int = 1
    is_away: bool = False
    url: str = ""

    def let(self, grant: KeyGrant) -> KeyGrant:
        self.grants[grant.key_hash] = grant
        return grant

    def serve(self, endpoint: EndpointRow) -> EndpointRow:
        self.endpoints = [row for row in self.endpoints if row.endpoint_id != endpoint.endpoint_id] + [endpoint]
        self.version += 1
        return endpoint

    async def sync(self, request: web.Request) -> web.Response:
        if self.is_away or request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=503)
        report = GatewaySync.model_validate_json(await request.read())
        self.syncs.append(report)
        for row in report.usage:
            if row.seq == len(self.usage) + 1:  # gapless, each once
                self.usage.append(row)
                self.charge(row)
        version = str(self.version)
        table = (
            None
            if report.known == version
            else Table(endpoints=self.endpoints, replicas=self.replicas).model_dump(mode="json")
        )
        ids = set(report.keys)
        grants = [grant.model_dump(mode="json") for grant in self.grants.values() if grant.key_id in ids]
        answer = {"version": version, "table": table, "grants": grants, "usage_seq": len(self.usage)}
        return web.json_response(answer)

    def charge(self, row: UsageRow) -> None:
        """A budget is what is left after the rows that are in the books."""
        for grant in self.grants.values():
            if grant.key_id == row.key_id and grant.budget_usd_micros is not None:
                self.let(grant.model_copy(update={"budget_usd_micros": grant.budget_usd_micros - row.cost_usd_micros}))
                return

    async def keys(self, request: web.Request) -> web.Response:
        if self.is_away or request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=503)
        question = KeyQuestion.model_validate_json(await request.read())
        self.questions.append(question.key_hashes)
        known = [self.grants[key].model_dump(mode="json") for key in question.key_hashes if key in self.grants]
        return web.json_response({"grants": known})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Marketplace]:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/internal/gateway/v1/sync", self.sync)
        app.router.add_post("/internal/gateway/v1/keys", self.keys)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()


class Engine:
    """Answers as requested: `max_tokens` words, as a stream where one is requested; `gate` delays it."""

    def __init__(self, meter: Metering) -> None:
        self.meter = meter
        self.requests: list[InferenceRequest] = []
        self.gate: asyncio.Event | None = None
        self.endless = False
        self.gone = 0

    async def answer(self, request: InferenceRequest, client: Client) -> None:
        self.requests.append(request)
        written = 0
        status: Any = "ok"
        try:
            if self.gate is not None:
                await self.gate.wait()
            if request.is_stream or self.endless:
                await client.start(200, [(b"content-type", b"text/event-stream")])
                while self.endless or written < request.body["max_tokens"]:
                    await client.send(b'data: {"word":%d}\n\n' % written * (1000 if self.endless else 1))
                    written += 1
                await client.end()
            else:
                body = json.dumps({"echo": request.body}).encode()
                written = request.body.get("max_tokens", 0)
                await client.start(
                    200, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
                )
                await client.send(body)
                await client.end()
        except ClientGone:
            self.gone += 1
            status = "cancelled"
        finally:
            self.meter(Used(request, 0, 1, None, status, 10, written))


@dataclass
class Stage:
    """One gateway that is up."""

    marketplace: Marketplace
    server: Server
    engine: Engine
    parts: Parts
    port: int
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(self, body: Any, key: str = "alice", path: str = "/v1/chat/completions", **options: Any) -> Said:
        headers = {"Authorization": f"Bearer {key_of(key)}"} | options.pop("headers", {})
        options |= {"data": body} if isinstance(body, bytes) else {"json": body}
        if isinstance(body, bytes):
            headers = {"Content-Type": "application/json"} | headers
        async with self.session.post(self.url + path, headers=headers, **options) as response:
            return Said(response.status, response.headers, await response.read())

    async def get(self, path: str, key: str = "alice", **options: Any) -> Said:
        headers = {"Authorization": f"Bearer {key_of(key)}"} | options.pop("headers", {})
        async with self.session.get(self.url + path, headers=headers, **options) as response:
            return Said(response.status, response.headers, await response.read())


@dataclass
class Said:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


def chat(model: str = "tiny", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5} | fields


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Returns when it holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def gateway(
    marketplace: Marketplace, data: Path, *, replicas: Replicas | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    """A gateway of its own, serving: by these replicas, else by an engine that stands in for all of them."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = GatewayConfig(
        control_url=marketplace.url, token=TOKEN, data=data, url="ws://127.0.0.1", **({"drain_seconds": 2} | settings)
    )
    engines: list[tuple[Engine, Parts]] = []

    def compose(parts: Parts) -> Backend:
        engine = Engine(parts.meter)
        engines.append((engine, parts))
        if replicas is None:
            return Backend(engine, _no_tunnel)
        serving = Serving(replicas, parts.directory, parts.meter, on_wanted=parts.control.wake)
        return Backend(serving, _no_tunnel, serving.close)

    server = await build(config, compose)
    serving = asyncio.create_task(server._serve([listener]))  # without its signal handlers
    engine, parts = engines[0]
    try:
        await until(lambda: server.started and (parts.directory.version or marketplace.is_away))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Stage(marketplace, server, engine, parts, port, session)
    finally:
        server.should_exit = True
        await serving


async def _no_tunnel(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008})


@asynccontextmanager
async def stage(tmp_path: Path, **settings: Any) -> AsyncIterator[Stage]:
    """Alice's private endpoint `tiny`, Bob's public `open` and private `secret`, Alice's key; all up."""
    marketplace = Marketplace()
    marketplace.serve(endpoint_for("tiny"))
    marketplace.serve(endpoint_for("open", BOB, is_public=True))
    marketplace.serve(endpoint_for("secret", BOB))
    marketplace.let(grant_for("alice"))
    async with marketplace.open(), gateway(marketplace, tmp_path / "gateway", **settings) as up:
        yield up
