"""The two ends of `benchmarks.tunnels`, each a process: the provider's, and the gateway's, which measures.

python -m benchmarks.setups.tunnels_ends engine FOLDER                  HTTP on a socket, on TCP, and on TCP with TLS
python -m benchmarks.setups.tunnels_ends agent FOLDER URL GATEWAY_KEY   the agent's tunnels
python -m benchmarks.setups.tunnels_ends measure SUBJECT FOLDER ADDRESS SECONDS LARGE_MIB
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ENGINE_PORT, ENGINE_TLS_PORT, GATEWAY_PORT, SSH_PORT, FORWARDED_PORT = 29_801, 29_802, 29_803, 29_804, 29_805
CLIENTS = (1, 16, 64)
STREAMS, TOKENS = 64, 200
BEHIND_SECONDS_MAX = 20.0
WARM_REQUESTS = 50
LEASE = UUID(int=7)
NODE_KEY, GATEWAY_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
CERTIFICATE = "gateway.pem"
TOKEN = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}\n\n'
BODY = b'{"messages": [{"role": "user", "content": "' + b"x" * 400 + b'"}]}'
ANSWER = b'{"choices": [{"message": {"content": "' + b"y" * 300 + b'"}}]}'
LARGE = bytes(64 * 1024)


# --- the provider's end


class Engine(asyncio.Protocol):
    """As quick as Python is: constant answers, one request at a time a connection."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """By asyncio."""
        self.transport, self.came = cast("asyncio.Transport", transport), b""
        self.may_write = asyncio.Event()
        self.may_write.set()

    def pause_writing(self) -> None:
        """By asyncio."""
        self.may_write.clear()

    def resume_writing(self) -> None:
        """By asyncio."""
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        """By asyncio."""
        self.came += data
        head, found, body = self.came.partition(b"\r\n\r\n")
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if not found or len(body) < length:
            return
        self.came = b""
        if b" /v1/stream" in head:
            self.task = asyncio.create_task(self.stream())
        elif b" /v1/large/" in head:
            self.task = asyncio.create_task(self.large(int(head.split(b" /v1/large/")[1].split(b" ")[0])))
        else:
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))

    async def stream(self) -> None:
        """TOKENS pieces, each of them written alone."""
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(TOKENS):
            await self.may_write.wait()
            self.transport.write(b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))
            await asyncio.sleep(0)
        self.transport.write(b"0\r\n\r\n")

    async def large(self, mib: int) -> None:
        """So many MiB."""
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (mib << 20))
        for _ in range((mib << 20) // len(LARGE)):
            await self.may_write.wait()
            self.transport.write(LARGE)


async def engine(folder: Path) -> None:
    """Three doors."""
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / CERTIFICATE)
    servers = [
        await loop.create_unix_server(Engine, str(folder / "serve.sock")),
        await loop.create_server(Engine, "127.0.0.1", ENGINE_PORT),
        await loop.create_server(Engine, "0.0.0.0", ENGINE_TLS_PORT, ssl=context),
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def agent(folder: Path, url: str, gateway_key: str) -> None:
    """As the daemon has it: plain asyncio."""
    from provider_agent.protocol import GatewayPlace, ServePlace
    from provider_agent.tunnel import Tunnels

    place = ServePlace(endpoint_id=LEASE, gateways=[GatewayPlace(url=url, public_key=gateway_key)])
    Tunnels(NODE_KEY).announce(LEASE, place, folder / "serve.sock", {"engine": "constant"})
    await asyncio.Event().wait()


# --- the gateway's end

Ask = Callable[[str], Awaitable[int]]  # a path; how many bytes came


@contextlib.asynccontextmanager
async def by_http(url: str, folder: Path) -> AsyncIterator[Ask]:
    """As a gateway would without tunnels: aiohttp's client, with connections that are kept."""
    import aiohttp

    context = ssl.create_default_context(cafile=str(folder / CERTIFICATE))
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def ask(path: str) -> int:
            size = 0
            async with session.post(url + path, data=BODY) as answer:
                async for chunk in answer.content.iter_any():
                    size += len(chunk)
            return size

        yield ask


@contextlib.asynccontextmanager
async def by_tunnel(address: str, folder: Path, **options: Any) -> AsyncIterator[Ask]:
    """A hub under uvicorn, with TLS."""
    import socket
    from uuid import uuid4

    import uvicorn

    from jobs.gateway.messages import ReplicaRow
    from jobs.gateway.tunnels import TunnelHub
    from provider_agent.protocol.tunnel.tuning import tune

    hub = TunnelHub(GATEWAY_KEY, urls=[f"wss://{address}:{GATEWAY_PORT}"])
    node_key = NODE_KEY.public_key().public_bytes_raw().hex()
    ids = {"lease_id": LEASE, "attempt_id": uuid4(), "endpoint_id": uuid4(), "node_id": uuid4()}
    hub.allow([ReplicaRow(**ids, version=1, node_key=node_key, state="ready")])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await hub.accept(scope, receive, send)

    listening = socket.create_server((address, GATEWAY_PORT))
    tune(listening)
    certificate = str(folder / CERTIFICATE)
    config = uvicorn.Config(
        app,
        log_level="error",
        lifespan="off",
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
        ws_per_message_deflate=False,
        **{"ws": "websockets-sansio", **options},
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))

    async def ask(path: str) -> int:
        upstream = hub.upstream(LEASE)
        if upstream is None:
            raise OSError("the agent is not there")
        answer = await upstream.request("POST", path, [], BODY, seconds=60)
        size = 0
        async for chunk in answer.chunks():
            size += len(chunk)
        return size

    yield ask
    server.should_exit = server.force_exit = True
    await serving


async def measure(subject: str, folder: Path, address: str, seconds: float, large_mib: int) -> dict[str, Any]:
    """Every figure of one subject. `address`: of the gateway for a tunnel, else of whatever is asked."""
    route = by_tunnel(address, folder) if subject == "tunnel" else by_http(address, folder)
    async with route as ask:
        until = time.monotonic() + BEHIND_SECONDS_MAX
        while True:
            try:
                await ask("/v1/one")
                break
            except Exception:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)
        for _ in range(WARM_REQUESTS):
            await ask("/v1/one")
        figures: dict[str, Any] = {}
        for clients in CLIENTS:
            figures[f"clients_{clients}"] = await closed_loop(ask, clients, seconds)
        figures["streams"] = await streams(ask)
        figures["large"] = await large(ask, large_mib)
        figures["behind_large"] = await behind_large(ask, large_mib)
        return figures


async def closed_loop(ask: Ask, clients: int, seconds: float) -> dict[str, float]:
    """Each client asks again as soon as it has its answer."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        while (started := time.perf_counter()) < until:
            assert await ask("/v1/one") == len(ANSWER)
            times.append(time.perf_counter() - started)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return {"per_s": round(len(times) / (time.perf_counter() - began)), **spread(times)}


async def streams(ask: Ask) -> dict[str, float]:
    """STREAMS answers of TOKENS pieces at once, as quickly as they go."""
    began = time.perf_counter()
    sizes = await asyncio.gather(*(ask("/v1/stream") for _ in range(STREAMS)))
    took = time.perf_counter() - began
    assert sizes == [TOKENS * len(TOKEN)] * STREAMS
    return {"tokens_per_s": round(STREAMS * TOKENS / took), "seconds": round(took, 3)}


async def large(ask: Ask, mib: int) -> dict[str, float]:
    """One large answer, alone; the second of two, as the first finds the line's speed."""
    await ask(f"/v1/large/{mib}")
    began = time.perf_counter()
    assert await ask(f"/v1/large/{mib}") == mib << 20
    return {"mb_per_s": round((mib << 20) / 1e6 / (time.perf_counter() - began), 1)}


async def behind_large(ask: Ask, mib: int) -> dict[str, float]:
    """Small answers while large ones come by the same route: what a token waits for them."""
    times: list[float] = []
    bulk = asyncio.gather(*(ask(f"/v1/large/{mib}") for _ in range(2)))
    await asyncio.sleep(0.1)
    while not bulk.done():
        started = time.perf_counter()
        await ask("/v1/one")
        times.append(time.perf_counter() - started)
        await asyncio.sleep(0.005)
    await bulk
    return {"asked": len(times), **spread(times)}


def spread(times: list[float]) -> dict[str, float]:
    """Median and p99, in ms."""
    ordered = sorted(times) or [0.0]
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50_ms": round(1000 * statistics.median(ordered), 2), "p99_ms": round(1000 * p99, 2)}


def main() -> None:
    """As the first word says."""
    what, words = sys.argv[1], sys.argv[2:]
    if what == "agent":
        asyncio.run(agent(Path(words[0]), words[1], words[2]))
        return
    import uvloop

    if what == "engine":
        uvloop.run(engine(Path(words[0])))
    else:
        figures = uvloop.run(measure(words[0], Path(words[1]), words[2], float(words[3]), int(words[4])))
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
