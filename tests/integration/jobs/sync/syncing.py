"""A sync process, and what a test posts to it in the name of a node."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import httpx
import uvicorn

from jobs.sync.app import SYNC_PATH, Application
from marketplace.nodes import agent_auth
from marketplace.nodes.models import Node
from provider_agent.protocol import (
    LeaseReport,
    SyncRequest,
    SyncResponse,
    sign_request,
)
from tests.integration.jobs.conftest import transport_key

BOOT = uuid4()


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """One sync process' worth of server; yields its base URL."""
    agent_auth.forget_all()
    config = uvicorn.Config(Application(), host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def wait_until(is_so, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def post(url: str, node: Node, body: bytes, *, time_ms: int | None = None, **changes: str) -> httpx.Response:
    time_ms = time_ms or int(time.time() * 1000)
    headers = sign_request(transport_key(node.name), node.id, "POST", SYNC_PATH, time_ms, body) | changes
    return httpx.post(f"{url}{SYNC_PATH}", content=body, headers=headers, timeout=30)


def message(*reports: LeaseReport, known: str = "", wait_seconds: float = 0, boot_id: UUID = BOOT) -> SyncRequest:
    return SyncRequest(protocol=1, boot_id=boot_id, known=known, wait_seconds=wait_seconds, leases=list(reports))


def sync(url: str, node: Node, *reports: LeaseReport, **more) -> SyncResponse:
    answer = post(url, node, message(*reports, **more).model_dump_json().encode())
    assert answer.status_code == 200, answer.text
    return SyncResponse.model_validate_json(answer.content)
