"""The gateway's door: who asks, for what, within which limits; then `serving` answers. Raw ASGI, no framework.

1. A key is checked before its body is read; a body is read within bounds of its own and of all bodies together.
2. The body is checked, its endpoint found, its most possible use reserved.
3. `serving.answer` does the rest; what was reserved is given back when it is done.
Every refusal has OpenAI's form, a stable code, and tells nothing of what the caller may not see.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol
from uuid import UUID, uuid4

from jobs.gateway.asked import Asked, ClientGone, Header, Kind
from jobs.gateway.checks import check, read_json, read_model
from jobs.gateway.clients import HttpClient, Message, Receive, Send
from jobs.gateway.config import MEBIBYTE, GatewayConfig
from jobs.gateway.directory import Directory
from jobs.gateway.errors import ApiError
from jobs.gateway.grants import Grants
from jobs.gateway.limits import Limits, Ticket
from jobs.gateway.listing import list_models
from jobs.gateway.metrics import Metrics, may_read
from jobs.gateway.refusals import JSON, closed, error_headers, failed, no_model, overloaded, too_large
from jobs.gateway.spool import Spool
from jobs.gateway.table import EndpointRow, Grant

TUNNEL_PATH = "/tunnel/v1"
MODELS_PATH = "/v1/models"
KINDS: dict[str, Kind] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
    "/v1/embeddings": "embedding",
}
TASKS = {"chat": "generate", "completion": "generate", "embedding": "embed"}
CLIENT_GONE = 499  # nginx's number, for counting: nobody is there to see it
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_CORS_HEADERS: list[Header] = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type, x-request-id, x-souk-hedge"),
    (b"access-control-max-age", b"600"),
]
_EXPOSED = b"x-request-id, retry-after, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens"

Scope = dict[str, Any]
Accept = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI
logger = logging.getLogger(__name__)


class Answering(Protocol):
    """What `jobs.gateway.serving.Serving` is to the door."""

    async def answer(self, asked: Asked, client: HttpClient) -> None:
        """Answer it, whatever it takes. Raises ApiError before `client.start`, and ClientGone."""


class Gateway:
    """The ASGI application."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        directory: Directory,
        grants: Grants,
        limits: Limits,
        spool: Spool,
        serving: Answering,
        accept_tunnel: Accept,
        metrics: Metrics,
    ) -> None:
        self._config, self._directory, self._grants, self._limits = config, directory, grants, limits
        self._spool, self._serving, self._accept_tunnel, self._metrics = spool, serving, accept_tunnel, metrics
        self._body_bytes_max = config.body_mib_max * MEBIBYTE
        self._bodies_bytes_max = config.bodies_mib_max * MEBIBYTE
        self._body_bytes = 0  # of all requests under way
        self._origins = {origin.encode() for origin in config.cors_origins}
        self._is_draining = False
        self._is_idle = asyncio.Event()

    @property
    def body_bytes(self) -> int:
        """Of the requests under way, held here."""
        return self._body_bytes

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
        client = HttpClient(scope["caller"], scope["cycle"], receive, send, self._own_headers(request_id, headers))
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

    def _own_headers(self, request_id: UUID, headers: dict[bytes, bytes]) -> list[Header]:
        own: list[Header] = [(b"x-request-id", str(request_id).encode())]
        theirs = headers.get(b"x-client-request-id") or headers.get(b"x-request-id")
        if theirs is not None and _SANE_ID.fullmatch(theirs):
            own.append((b"x-client-request-id", theirs))
        if self._origins:
            own.append((b"vary", b"origin"))
            origin = headers.get(b"origin")
            if origin in self._origins:
                own.append((b"access-control-allow-origin", origin))
                own.append((b"access-control-expose-headers", _EXPOSED))
        return own

    async def _route(
        self, scope: Scope, headers: dict[bytes, bytes], client: HttpClient, request_id: UUID, started_at: float
    ) -> None:
        path, method = scope["path"], scope["method"]
        kind = KINDS.get(path)
        if method == "OPTIONS" and self._origins and headers.get(b"origin") in self._origins:
            await client.answer(204, _CORS_HEADERS, b"")
        elif kind is not None:
            _only(method, "POST")
            await self._answer(kind, headers, client, request_id, started_at)
        elif path == MODELS_PATH or path.startswith(MODELS_PATH + "/"):
            _only(method, "GET")
            grant = await self._grants.holder(_key(headers))
            await client.answer(200, [JSON], list_models(self._directory, grant, path[len(MODELS_PATH) + 1 :]))
        elif path == "/healthz":
            _only(method, "GET")
            is_well = self._directory.version and not self._spool.trouble and not self._is_draining
            await client.answer(200 if is_well else 503, [JSON], b'{"ok":true}' if is_well else b'{"ok":false}')
        elif path == "/metrics":
            _only(method, "GET")
            peer = (scope.get("client") or ("",))[0]
            if not may_read(peer, headers, self._config.metrics_token):
                raise ApiError(403, "forbidden", "Metrics are for loopback, or for who shows their token.")
            await client.answer(200, [(b"content-type", b"text/plain; version=0.0.4")], self._metrics.text())
        else:
            raise ApiError(404, "not_found", "There is nothing at this address.")

    async def _answer(
        self, kind: Kind, headers: dict[bytes, bytes], client: HttpClient, request_id: UUID, started_at: float
    ) -> None:
        self._check_room(client)
        grant = await self._grants.holder(_key(headers))
        _check_type(headers)
        body = await self._read_body(headers, client)
        size = len(body)
        try:
            fields = read_json(body)
            del body
            endpoint = self._endpoint(kind, fields, grant, size)
            checked = check(kind, fields, endpoint, size)
            try:
                grant, ticket = await self._admit(grant, endpoint, checked.input_tokens, checked.output_tokens_max)
            finally:
                client.headers += self._limits.rate_headers(grant)  # also of who is refused
            try:
                asked = Asked(
                    request_id=request_id,
                    kind=kind,
                    body=checked.body,
                    is_stream=checked.is_stream,
                    grant=grant,
                    endpoint=endpoint,
                    received_at=started_at,
                    deadline=started_at + self._seconds_for(endpoint),
                    is_hedged=headers.get(b"x-souk-hedge", b"").lower() in {b"1", b"true"},
                )
                await self._serving.answer(asked, client)
            finally:
                self._limits.release(ticket)
        finally:
            self._body_bytes -= size

    def _check_room(self, client: HttpClient) -> None:
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

    async def _read_body(self, headers: dict[bytes, bytes], client: HttpClient) -> bytearray:
        """Counted as held when it returns. Raises ApiError 413, 503; ClientGone."""
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._body_bytes_max:
            raise too_large(self._body_bytes_max)
        body, is_more = bytearray(), True
        try:
            while is_more:  # bounded by the bytes, and by BODY_SECONDS_MAX of the connection
                message: Message = await client.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                body += chunk
                self._body_bytes += len(chunk)
                is_more = message.get("more_body", False)
                if len(body) > self._body_bytes_max:
                    raise too_large(self._body_bytes_max)
                if self._body_bytes > self._bodies_bytes_max:
                    raise overloaded("Too many large requests are under way; please try again.")
        except BaseException:
            self._body_bytes -= len(body)
            raise
        return body

    def _endpoint(self, kind: Kind, body: dict[str, Any], grant: Grant, size: int) -> EndpointRow:
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
        self, grant: Grant, endpoint: EndpointRow, input_tokens: int, output_tokens: int
    ) -> tuple[Grant, Ticket]:
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


def _only(method: str, allowed: str) -> None:
    if method != allowed and not (allowed == "GET" and method == "HEAD"):
        raise ApiError(405, "method_not_allowed", f"This address takes {allowed} only.")


def _key(headers: dict[bytes, bytes]) -> str:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not key:
        raise ApiError(
            401,
            "missing_api_key",
            "You didn't provide an API key. Send it as a header: Authorization: Bearer YOUR_KEY.",
        )
    return key.strip().decode("latin-1")


def _check_type(headers: dict[bytes, bytes]) -> None:
    media = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if media != b"application/json":
        raise ApiError(415, "unsupported_media_type", "Send the body as application/json.")
