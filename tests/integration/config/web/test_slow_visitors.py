"""Visitors who are slow, idle or waiting hold up nobody: not the API, not webhooks, not whoever comes next."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.client import HTTPConnection
from uuid import uuid4

import pytest
from django.conf import settings

from jobs.artifacts.local import LocalStore
from jobs.artifacts.store import key_for
from jobs.gateway.frontend.connections import SEND_SECONDS_MAX
from jobs.models import Lease, Stream
from jobs.running import streams
from marketplace.accounts import api_keys
from marketplace.accounts.models import ApiKey, Organisation
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from tests.integration.config.web.conftest import LOOPBACK

pytestmark = pytest.mark.django_db(transaction=True)

SLOW = 50  # of each kind; the process has sixteen threads
ANSWER_SECONDS = 60
SLOW_HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127"
SLOW_BODY = b"POST /api/v1/stripe/webhook HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n\r\n{"


@pytest.fixture
def authorization(alice: Organisation) -> str:
    user = alice.members.first()
    assert user is not None
    return "Bearer " + api_keys.issue(user=user, organisation=alice, name="web", scopes=tuple(Scope))[1]


@contextlib.contextmanager
def visitors(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that have sent this."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection((LOOPBACK, port), 10)) for _ in range(count)]
        for one in opened:
            one.sendall(sent)
        yield opened


def poll_of(lease: Lease, authorization: str, *, path: str = "logs", seconds: float = 10) -> bytes:
    """The bytes of a request that waits for something new."""
    target = f"/api/v1/jobs/{lease.attempt.job_id}/{path}?wait_seconds={seconds}"
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {authorization}\r\n\r\n".encode()


def call(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(LOOPBACK, port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def url_below(url: str) -> str:
    """The address without its server."""
    return url.removeprefix(settings.SOUK_API_URL)


def read_all(one: socket.socket) -> bytes:
    """What comes until the other end closes."""
    one.settimeout(ANSWER_SECONDS)
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := one.recv(65536):
            received += piece
    return received


def test_slow_requests_and_polls_leave_the_api_answering(web: int, lease: Lease, authorization: str) -> None:
    with (
        visitors(web, SLOW, SLOW_HEAD) as heads,
        visitors(web, SLOW, SLOW_BODY),
        visitors(web, 2 * SLOW, poll_of(lease, authorization)),
        visitors(web, SLOW, b""),
    ):
        status, body = call(web, "GET", "/api/v1/jobs", Authorization=authorization)
        assert (status, len(json.loads(body)["results"])) == (200, 1)
        assert call(web, "POST", "/api/v1/stripe/webhook", b"{}")[0] in {400, 404}
        heads[0].setblocking(False)
        with contextlib.suppress(BlockingIOError):  # nobody was cut to make room, but perhaps for its slowness by now
            assert heads[0].recv(13) == b"HTTP/1.1 408 "


def test_who_is_slow_in_any_way_is_cut(web: int, sync: int) -> None:
    content = b"x" * (32 * 1024 * 1024)
    store, key = LocalStore.from_settings(), key_for(uuid4(), 0, 0)
    assert call(web, "PUT", url_below(store.begin_upload(key, len(content)).parts[0].url), content)[0] == 200
    target = url_below(store.url_for_download(key, until=clock.now() + timedelta(hours=1)))
    download = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    with (
        visitors(web, 1, SLOW_HEAD) as [head],
        visitors(web, 1, SLOW_BODY) as [body],
        visitors(sync, 1, SLOW_HEAD) as [agent],
        visitors(web, 1, download) as [reader],
        ThreadPoolExecutor(3) as pool,
    ):
        beginning = reader.recv(1000)
        read_nothing_since = time.monotonic()
        cut_head, cut_body, cut_agent = (pool.submit(read_all, each) for each in (head, body, agent))
        with contextlib.suppress(OSError):  # a byte a second, into a connection that is closed at last
            while not cut_body.done():
                body.sendall(b" ")
                time.sleep(1)
        assert cut_head.result().startswith(b"HTTP/1.1 408 ")
        assert cut_agent.result().startswith(b"HTTP/1.1 408 ")
        assert cut_body.result().startswith(b"HTTP/1.1 408 ")
        time.sleep(max(0.0, read_nothing_since + SEND_SECONDS_MAX + 10 - time.monotonic()))
        assert beginning.startswith(b"HTTP/1.1 200 ")
        assert len(beginning) + len(read_all(reader)) < len(content)


def test_a_file_comes_back_as_it_was_sent(web: int) -> None:
    content = bytes(range(256)) * 20_000
    store, key = LocalStore.from_settings(), key_for(uuid4(), 0, 0)
    target = url_below(store.begin_upload(key, len(content)).parts[0].url)
    assert call(web, "PUT", target, content[1:])[0] == 400
    assert call(web, "PUT", target.replace("signature=", "signature=0"), content)[0] == 403
    assert call(web, "PUT", target, content)[0] == 200
    target = url_below(store.url_for_download(key, until=clock.now() + timedelta(hours=1)))
    assert call(web, "GET", target) == (200, content)
    assert call(web, "GET", target, Range="bytes=1000000-1000999") == (206, content[1_000_000:1_001_000])
    assert call(web, "HEAD", target) == (200, b"")


def test_a_poll_is_answered_as_soon_as_there_is_something_new(web: int, lease: Lease, authorization: str) -> None:
    path = f"/api/v1/jobs/{lease.attempt.job_id}/logs?wait_seconds=10"
    with ThreadPoolExecutor(2) as pool:
        logs = pool.submit(call, web, "GET", path, Authorization=authorization)
        events = pool.submit(call, web, "GET", path.replace("logs", "events"), Authorization=authorization)
        time.sleep(1)
        streams.append(lease, Stream.LOG, fence=lease.fence, offset=0, data=b"a line\n")
        status, body = logs.result()
        assert (status, json.loads(body)["text"]) == (200, "a line\n")
        assert not events.done()
        status, body = events.result()
        assert (status, json.loads(body)["text"]) == (200, "")


def test_a_poll_of_a_key_that_was_revoked_is_refused(web: int, lease: Lease, authorization: str) -> None:
    path = f"/api/v1/jobs/{lease.attempt.job_id}/logs?wait_seconds=10"
    with ThreadPoolExecutor(1) as pool:
        logs = pool.submit(call, web, "GET", path, Authorization=authorization)
        time.sleep(1)
        ApiKey.objects.update(revoked_at="2026-01-01T00:00Z")
        streams.append(lease, Stream.LOG, fence=lease.fence, offset=0, data=b"a secret\n")
        status, body = logs.result()
    assert status == 401
    assert b"secret" not in body


def test_a_header_cannot_take_the_name_of_another(web: int, authorization: str) -> None:
    path = "/api/v1/jobs"
    assert call(web, "GET", path, Authorization=authorization)[0] == 200
    connection = socket.create_connection((LOOPBACK, web), 10)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX_Forwarded_For: 192.0.2.1\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())
    assert b" 401 " in read_all(connection).split(b"\r\n", 1)[0]
