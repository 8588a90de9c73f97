"""The gateway's HTTP entry point: who calls, which endpoint, within which limits; then `serving` answers. Raw ASGI.

1. A key is checked before its body is read; a body is read within bounds of its own and of all bodies in sum.
2. The body is checked, its endpoint found, the most that it can use is reserved.
3. `serving.answer` does the rest; what was reserved is given back when it is done.
Every refusal has OpenAI's form and a stable code, and reveals nothing that the caller may not see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol
from uuid import UUID, uuid4

from jobs.gateway.accounting.key_grants import KeyGrants
from jobs.gateway.accounting.limits import Limits, Ticket
from jobs.gateway.accounting.spool import Spool
from jobs.gateway.config import GatewayConfig
from jobs.gateway.errors import ApiError
from jobs.gateway.frontend.bodies import BodyReader
from jobs.gateway.frontend.clients import HttpClient, Receive, Send
from jobs.gateway.frontend.headers import CORS_HEADERS, own_headers, read_key, require_json, require_method
from jobs.gateway.frontend.listing import list_models
from jobs.gateway.frontend.refusals import (
    JSON,
    closed,
    error_headers,
    failed,
    no_model,
    overloaded,
    too_large,
)
from jobs.gateway.frontend.validation import read_json, read_model, validate_body
from jobs.gateway.inference_request import ClientGone, InferenceRequest, Kind
from jobs.gateway.messages import EndpointRow, KeyGrant
from jobs.gateway.metrics import Metrics, may_read
from jobs.gateway.routing.directory import Directory

TUNNEL_PATH = "/tunnel/v1"
MODELS_PATH = "/v1/models"
KINDS: dict[str, Kind] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
    "/v1/embeddings": "embedding",
}
TASKS = {"chat": "generate", "completion": "generate", "embedding": "embed"}
CLIENT_GONE = 499  # nginx's number, for counting: nobody is there to see it
Scope = dict[str, Any]
Accept = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI
logger = logging.getLogger(__name__)


class Answering(Protocol):
    """What `jobs.gateway.answering.serving.Serving` is to the entry point."""

    async def answer(self, request: InferenceRequest, client: HttpClient) -> None:
        """Answer it, whatever it takes. Raises ApiError before `client.start`, and ClientGone."""


class Gateway:
    """The ASGI application."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        directory: Directory,
        grants: KeyGrants,
        limits: Limits,
        spool: Spool,
        serving: Answering,
        accept_tunnel: Accept,
        metrics: Metrics,
    ) -> None:
        self._config, self._directory, self._grants, self._limits = config, directory, grants, limits
        self._spool, self._serving, self._accept_tunnel, self._metrics = spool, serving, accept_tunnel, metrics
        self._bodies = BodyReader(config)
        self._origins = {origin.encode() for origin in config.cors_origins}
        self._is_draining = False
        self._is_idle = asyncio.Event()

    @property
    def body_bytes(self) -> int:
        """Of the requests under way, held here."""
        return self._bodies.held_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            if scope["path"] == TUNNEL_PATH and not self._is_draining:
                await self._accept_tunnel(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1001 if self._is_draining else 1008})

    async def drain(self) -> None:
        """Take nothing new; return when nothing is under way, or `drain_seconds` are over."""
        self._is_draining = True
        if self._metrics.in_flight:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), self._config.drain_seconds)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, metrics = asyncio.get_running_loop(), self._metrics
        started_at, request_id = loop.time(), uuid4()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        client = HttpClient(
            scope["caller"], scope["cycle"], receive, send, own_headers(request_id, headers, self._origins)
        )
        path, code, status = scope["path"], "", 0
        metrics.in_flight += 1
        try:
            await self._route(scope, headers, client, request_id, started_at)
        except ApiError as error:
            code = error.code
            if not client.has_started:
                await client.answer(error.status, error_headers(error), error.body())
        except ClientGone:
            code, status = "client_gone", CLIENT_GONE
        except Exception:
            code, status = "internal_error", 500
            logger.exception("A request failed (request_id %s).", request_id)
            if not client.has_started:
                await client.answer(500, [JSON], failed().body())
        finally:
            metrics.in_flight -= 1
            if self._is_draining and not metrics.in_flight:
                self._is_idle.set()
            route = path if path in KINDS or path == MODELS_PATH else "other"
            if not (status or client.status):
                code, status = code or "client_gone", CLIENT_GONE
            metrics.observe(route, status or client.status, code, loop.time() - started_at)

    async def _route(
        self, scope: Scope, headers: dict[bytes, bytes], client: HttpClient, request_id: UUID, started_at: float
    ) -> None:
        path, method = scope["path"], scope["method"]
        kind = KINDS.get(path)
        if method == "OPTIONS" and self._origins and headers.get(b"origin") in self._origins:
            await client.answer(204, CORS_HEADERS, b"")
        elif kind is not None:
            require_method(method, "POST")
            await self._answer(kind, headers, client, request_id, started_at)
        elif path == MODELS_PATH or path.startswith(MODELS_PATH + "/"):
            require_method(method, "GET")
            grant = await self._grants.holder(read_key(headers))
            await client.answer(200, [JSON], list_models(self._directory, grant, path[len(MODELS_PATH) + 1 :]))
        elif path == "/healthz":
            require_method(method, "GET")
            is_well = self._directory.version and not self._spool.trouble and not self._is_draining
            await client.answer(200 if is_well else 503, [JSON], b'{"ok":true}' if is_well else b'{"ok":false}')
        elif path == "/metrics":
            require_method(method, "GET")
            peer = (scope.get("client") or ("",))[0]
            if not may_read(peer, headers, self._config.metrics_token):
                raise ApiError(403, "forbidden", "Metrics are for loopback, or for who shows their token.")
            await client.answer(200, [(b"content-type", b"text/plain; version=0.0.4")], self._metrics.text())
        else:
            raise ApiError(404, "not_found", "There is nothing at this address.")

    async def _answer(
        self, kind: Kind, headers: dict[bytes, bytes], client: HttpClient, request_id: UUID, started_at: float
    ) -> None:
        self._refuse_overload(client)
        grant = await self._grants.holder(read_key(headers))
        require_json(headers)
        body = await self._bodies.read(headers, client, grant.organisation_id)
        size = len(body)
        try:
            fields = read_json(body)
            del body
            endpoint = self._endpoint(kind, fields, grant, size)
            validated = validate_body(kind, fields, endpoint, size)
            try:
                grant, ticket = await self._admit(grant, endpoint, validated.input_tokens, validated.output_tokens_max)
            finally:
                client.headers += self._limits.rate_headers(grant)  # also of who is refused
            try:
                request = InferenceRequest(
                    request_id=request_id,
                    kind=kind,
                    body=validated.body,
                    is_stream=validated.is_stream,
                    grant=grant,
                    endpoint=endpoint,
                    received_at=started_at,
                    deadline=started_at + self._seconds_for(endpoint),
                    is_hedged=headers.get(b"x-souk-hedge", b"").lower() in {b"1", b"true"},
                )
                await self._serving.answer(request, client)
            finally:
                self._limits.release(ticket)
        finally:
            self._bodies.release(size)

    def _refuse_overload(self, client: HttpClient) -> None:
        trouble = ""
        if self._is_draining:
            trouble = "This gateway is being stopped; please try again."
        elif self._metrics.in_flight > self._config.requests_max or client.caller.is_beyond_bound:
            trouble = "Too many requests are under way; please try again."
        elif self._spool.trouble:
            trouble = "Use cannot be counted at this moment; please try again."
        elif not self._directory.version:
            trouble = "This gateway has just started; please try again."
        if trouble:
            client.headers.append((b"connection", b"close"))
            raise overloaded(trouble)

    def _endpoint(self, kind: Kind, body: dict[str, Any], grant: KeyGrant, size: int) -> EndpointRow:
        model = read_model(body)
        endpoint = self._directory.find(model, grant)
        if endpoint is None:
            raise no_model(model)
        if endpoint.closed:
            raise closed(endpoint.closed)
        if endpoint.task != TASKS[kind]:
            is_for = "embeddings" if endpoint.task == "embed" else "text"
            raise ApiError(400, "unsupported_operation", f"The model makes {is_for} only.", param="model")
        if size > endpoint.limits.body_bytes:
            raise too_large(endpoint.limits.body_bytes)
        return endpoint

    async def _admit(
        self, grant: KeyGrant, endpoint: EndpointRow, input_tokens: int, output_tokens: int
    ) -> tuple[KeyGrant, Ticket]:
        """A budget is given out in slices: where this one is used up, there may be another."""
        try:
            return grant, self._limits.admit(grant, endpoint, input_tokens, output_tokens)
        except ApiError as error:
            if error.code != "insufficient_quota":
                raise
        grant = await self._grants.renew(grant)
        return grant, self._limits.admit(grant, endpoint, input_tokens, output_tokens)

    def _seconds_for(self, endpoint: EndpointRow) -> float:
        is_awake = any(replica.state == "ready" for replica in self._directory.replicas_of(endpoint.endpoint_id))
        return endpoint.limits.request_seconds + (0.0 if is_awake else endpoint.limits.wake_seconds)
