"""Signed calls to the server. Every call is bounded in time, and repeated only where errors.decide says it can help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar
from urllib.parse import urljoin
from uuid import UUID

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ValidationError

from provider_agent import protocol
from provider_agent.errors import ClockSkewed, Refused, Retryable, ServerBusy, Unreachable, decide
from provider_agent.protocol.backoff import FULL_JITTER, backoff_seconds
from provider_agent.protocol.money.usage_statements import SignedStatement, StatementAck
from provider_agent.system.trust import tls_context

ATTEMPTS_MAX = 6
RETRY_SECONDS_FIRST = 0.6
RETRY_SECONDS_MAX = 20.0
CONNECT_SECONDS_MAX = 5.0
CALL_SECONDS_MAX = 20.0
TIMEOUT = httpx.Timeout(CALL_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
SYNC_MARGIN_SECONDS = 5.0
TRANSFER_TIMEOUT = httpx.Timeout(120.0, connect=CONNECT_SECONDS_MAX)
CHUNK_BYTES = 256 * 1024
CONNECTIONS_MAX = 16

API = "/api/agent/v1"
FEATURES = (protocol.FEATURE_CHECKS, protocol.FEATURE_LINKS, protocol.FEATURE_UPDATES, protocol.FEATURE_GATEWAYS)
SYNC_HEADERS = {protocol.HEADER_FEATURES: ",".join(FEATURES)}
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Client:
    """One node's connection to one marketplace."""

    def __init__(
        self,
        *,
        api_url: str,
        sync_url: str = "",
        node_id: UUID | None = None,
        key: Ed25519PrivateKey | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._api_url = api_url.rstrip("/")
        self._sync_url = (sync_url or api_url).rstrip("/")
        self._node_id = node_id
        self._key = key
        self.clock_offset = timedelta(0)  # server's time minus ours
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX)
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT, limits=limits, transport=transport, trust_env=True, verify=tls_context()
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    def server_now(self) -> datetime:
        """The server's time as far as we know it."""
        return datetime.now(UTC) + self.clock_offset

    def learn_clock(self, server_time: datetime) -> None:
        """From now on sign with the server's time."""
        self.clock_offset = server_time - datetime.now(UTC)

    # --- the calls

    async def enrol(self, request: protocol.EnrolRequest) -> protocol.EnrolResponse:
        """Turn a token into a node; not repeated, because the token is single-use."""
        response = await self._send("POST", f"{self._api_url}{API}/enrol", _json(request), signed=False)
        return _read(protocol.EnrolResponse, response)

    async def sync(self, request: protocol.SyncRequest) -> protocol.SyncResponse:
        """One beat; not repeated here, the sync loop is its own retry."""
        limits = httpx.Timeout(
            CALL_SECONDS_MAX, connect=CONNECT_SECONDS_MAX, read=request.wait_seconds + SYNC_MARGIN_SECONDS
        )
        url = f"{self._sync_url}{API}/sync"
        response = await self._send("POST", url, _json(request), limits=limits, headers=SYNC_HEADERS)
        return _read(protocol.SyncResponse, response)

    async def append(self, lease_id: UUID, stream: str, *, offset: int, fence: int, data: bytes) -> int:
        """Append `data` to a lease's "logs" or "events" at `offset`; returns the offset that the server has now.

        A 409 is an answer, not an error: it names the offset to go on from.
        """
        url = f"{self._lease(lease_id)}/{stream}?offset={offset}&fence={fence}"
        try:
            response = await self._send("POST", url, data, content_type="application/octet-stream")
        except Refused as error:
            if error.status == 409 and isinstance(error.details.get("offset"), int):
                return int(error.details["offset"])
            raise
        return _read(protocol.AppendResponse, response).offset

    async def send_receipts(self, lease_id: UUID, receipts: list[protocol.SignedReceipt], *, fence: int) -> int:
        """Append receipts; returns the newest sequence that the server has accepted."""
        body = _json(protocol.ReceiptAppend(receipts=receipts))
        response = await self._send("POST", f"{self._lease(lease_id)}/receipts?fence={fence}", body)
        return _read(protocol.ReceiptAck, response).seq

    async def send_usage_statement(self, lease_id: UUID, signed: SignedStatement, *, fence: int) -> int:
        """Send a token usage statement; returns the newest sequence that the server has."""
        response = await self._send("POST", f"{self._lease(lease_id)}/statement?fence={fence}", _json(signed))
        return _read(StatementAck, response).seq

    async def begin_artifact(
        self, lease_id: UUID, begin: protocol.ArtifactBegin, *, fence: int
    ) -> protocol.ArtifactUploads:
        """Announce an artifact's files and learn where their bytes go."""
        response = await self._send("POST", f"{self._lease(lease_id)}/artifacts?fence={fence}", _json(begin))
        return _read(protocol.ArtifactUploads, response)

    async def complete_artifact(
        self, lease_id: UUID, artifact_id: UUID, complete: protocol.ArtifactComplete, *, fence: int
    ) -> None:
        """Report that every byte was put; repeating it changes nothing. A store may read them all before it answers."""
        url = f"{self._lease(lease_id)}/artifacts/{artifact_id}/complete?fence={fence}"
        await self._send("POST", url, _json(complete), limits=TRANSFER_TIMEOUT)

    async def get_artifact(
        self, lease_id: UUID, artifact_id: UUID, *, is_damaged: bool = False
    ) -> protocol.ArtifactDownloads:
        """Where the files of an input or resume artifact can be fetched.

        `is_damaged`: the addresses of before gave other bytes than announced; the server may know a second copy.
        """
        query = "?damaged=1" if is_damaged else ""
        response = await self._send("GET", f"{self._lease(lease_id)}/artifacts/{artifact_id}{query}", b"")
        return _read(protocol.ArtifactDownloads, response)

    async def send_measurements(self, request: protocol.MeasurementRequest) -> None:
        """Report what the probe measured."""
        await self._send("POST", f"{self._api_url}{API}/measurements", _json(request))

    async def begin_check(self, check_id: UUID) -> protocol.CheckTask:
        """The seeds; from here the marketplace's clock runs."""
        return _read(protocol.CheckTask, await self._check(check_id, "begin"))

    async def commit_check(self, check_id: UUID, commit: protocol.CheckCommit) -> protocol.CheckOpen:
        """What was computed; answered with what must be shown of it."""
        return _read(protocol.CheckOpen, await self._check(check_id, "commit", commit))

    async def reveal_check(self, check_id: UUID, reveal: protocol.CheckReveal) -> None:
        """One requested block."""
        await self._check(check_id, "reveal", reveal)

    async def fill_check(self, check_id: UUID) -> protocol.RecallStep:
        """Memory is full; answered with the first step of reading it back."""
        return _read(protocol.RecallStep, await self._check(check_id, "filled"))

    async def recall_check(self, check_id: UUID, recall: protocol.CheckRecall) -> protocol.RecallStep:
        """The answer to one step; answered with the next or with the verdict."""
        return _read(protocol.RecallStep, await self._check(check_id, "recall", recall))

    async def report_link(self, probe_id: UUID, report: protocol.LinkReport) -> None:
        """Report one side of a link probe; repeating it changes nothing."""
        await self._send("POST", f"{self._api_url}{API}/links/{probe_id}", _json(report))

    async def standing(self) -> protocol.NodeStanding:
        """How this node stands in the market."""
        return _read(protocol.NodeStanding, await self._send("GET", f"{self._api_url}{API}/standing", b""))

    async def change_standing(
        self, name: Literal["drain", "resume", "price"], request: BaseModel
    ) -> protocol.NodeStanding:
        """Drain, resume, or set the price; repeating it is harmless."""
        response = await self._send("POST", f"{self._api_url}{API}/{name}", _json(request))
        return _read(protocol.NodeStanding, response)

    async def schedule(self, wanted: protocol.Schedule | None = None) -> protocol.Schedule:
        """When the node is there, as the server has it; with `wanted`, from now on."""
        url = f"{self._api_url}{API}/schedule"
        response = await (self._send("POST", url, _json(wanted)) if wanted else self._send("GET", url, b""))
        return _read(protocol.Schedule, response)

    async def earnings(self) -> protocol.Earnings:
        """What this node has earned."""
        return _read(protocol.Earnings, await self._send("GET", f"{self._api_url}{API}/earnings", b""))

    async def fetch_sample(self) -> int:
        """Download a sample, to measure the bandwidth; returns its bytes."""
        return len((await self._send("GET", f"{self._api_url}{API}/sample", b"")).content)

    async def retire(self) -> None:
        """Take the node out of the market for good."""
        await self._send("POST", f"{self._api_url}{API}/retire", b"{}")

    # --- bytes, by URLs that carry their own signature

    async def put_part(self, url: str, path: Path, *, offset: int, size: int) -> str:
        """PUT `size` bytes of `path` from `offset`; returns the ETag of the stored part."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        content = _read_range(path, offset, size) if size else b""
        try:
            response = await self._http.put(
                self._absolute(url), content=content, headers=headers, timeout=TRANSFER_TIMEOUT
            )
        except httpx.RequestError as error:
            raise decide(error) from error
        if response.status_code >= 300:
            raise decide(response)
        return str(response.headers.get("ETag", "")).strip('"')

    async def download(self, url: str, write: Callable[[bytes], Any], *, offset: int = 0) -> None:
        """GET `url` and hand its bytes to `write` in order, from `offset` on; a server without ranges sends it all."""
        headers = {"Range": f"bytes={offset}-", "Accept-Encoding": "identity"} if offset else {}
        try:
            async with self._http.stream(
                "GET", self._absolute(url), headers=headers, timeout=TRANSFER_TIMEOUT, follow_redirects=True
            ) as response:
                if response.status_code >= 300:
                    await response.aread()
                    raise decide(response)
                passed_over = offset if response.status_code == httpx.codes.OK else 0
                async for chunk in response.aiter_bytes(CHUNK_BYTES):
                    skipped = min(passed_over, len(chunk))
                    passed_over -= skipped
                    if len(chunk) > skipped:
                        write(chunk[skipped:])
        except httpx.TransportError as error:
            raise decide(error) from error

    # --- below

    async def _check(self, check_id: UUID, step: str, message: BaseModel | None = None) -> httpx.Response:
        body = b"{}" if message is None else _json(message)
        return await with_retries(lambda: self._send("POST", f"{self._api_url}{API}/checks/{check_id}/{step}", body))

    def _lease(self, lease_id: UUID) -> str:
        return f"{self._api_url}{API}/leases/{lease_id}"

    def _absolute(self, url: str) -> str:
        return urljoin(self._api_url + "/", url)

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes,
        *,
        signed: bool = True,
        content_type: str = "application/json",
        limits: httpx.Timeout = TIMEOUT,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Response:
        """One request. A refused clock is learnt and the request signed anew, once."""
        given = {"Content-Type": content_type, **headers}
        try:
            return await self._send_once(method, url, body, signed=signed, headers=given, limits=limits)
        except ClockSkewed as error:
            if error.server_time is None:
                raise
            self.learn_clock(error.server_time)
        return await self._send_once(method, url, body, signed=signed, headers=given, limits=limits)

    async def _send_once(
        self, method: str, url: str, body: bytes, *, signed: bool, headers: dict[str, str], limits: httpx.Timeout
    ) -> httpx.Response:
        if signed:
            headers = headers | self._sign(method, url, body)
        try:
            response = await self._http.request(method, url, content=body, headers=headers, timeout=limits)
        except httpx.TransportError as error:
            raise decide(error) from error
        except httpx.InvalidURL as error:
            raise Unreachable(f"{url} is not a URL: {error}") from error
        if response.status_code >= 300:
            raise decide(response)
        return response

    def _sign(self, method: str, url: str, body: bytes) -> dict[str, str]:
        if self._key is None or self._node_id is None:
            raise ValueError("a signed call needs a node and its key")
        time_ms = int(time.time() * 1000 + self.clock_offset.total_seconds() * 1000)
        path_and_query = httpx.URL(url).raw_path.decode("ascii")
        return protocol.sign_request(self._key, self._node_id, method, path_and_query, time_ms, body)


async def with_retries(call: Callable[[], Awaitable[T]], *, attempts_max: int = ATTEMPTS_MAX) -> T:
    """Repeat `call` after Retryable errors, pausing a random part of a doubling interval (full jitter)."""
    for attempt in range(1, attempts_max + 1):
        try:
            return await call()
        except Retryable:
            if attempt == attempts_max:
                raise
        pause = backoff_seconds(attempt, first=RETRY_SECONDS_FIRST, most=RETRY_SECONDS_MAX, jitter=FULL_JITTER)
        await asyncio.sleep(pause)
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _read_range(path: Path, offset: int, size: int) -> AsyncIterator[bytes]:
    """`size` bytes of `path` from `offset`, in chunks, read off the event loop."""
    with path.open("rb") as source:
        source.seek(offset)
        left = size
        while left:
            chunk = await asyncio.to_thread(source.read, min(CHUNK_BYTES, left))
            if not chunk:
                raise Unreachable(f"{path.name} became shorter while it was sent")
            left -= len(chunk)
            yield chunk


def _read(model: type[M], response: httpx.Response) -> M:
    """The answer as a message; one that cannot be read may come from a proxy, and is retryable."""
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise ServerBusy(f"The server's answer cannot be read: {error.errors()[0]['msg']}") from error


def _json(message: BaseModel) -> bytes:
    return message.model_dump_json().encode()
