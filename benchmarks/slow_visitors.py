"""How long a webhook takes while others are slow: the web process as `souk up` starts it, without a proxy in front.

Open all the time: polls of a log that wait for something new (each again as soon as it is answered), and requests of
which a byte comes now and then. Meanwhile signed webhooks come one after the other, each stored by the database. In
turns with the same webhooks alone, on the same machine: the ratio of both is the figure, as the
machine is shared; the goal is for the absolute p99.

    python -m benchmarks.slow_visitors [--rounds 3] [--webhooks 200] [--write]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.record import publish
from benchmarks.setups.database import environment, set_up

POLLS, SLOW_CLIENTS = 500, 200
ROUNDS, WEBHOOKS = 3, 200
HOST = "127.0.0.1"
SECRET = "whsec_benchmark"
READY_SECONDS, ANSWER_SECONDS, SETTLE_SECONDS = 120, 60, 5
SLOW_PIECE_SECONDS = 2.0
SLOW_HEAD = b"POST /api/v1/stripe/webhook HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n"
SETTINGS = {
    "SOUK_STRIPE_KEY": "sk_test_benchmark",
    "SOUK_STRIPE_WEBHOOK_SECRETS": SECRET,
    "SOUK_THROTTLE_USER": "10000000/min",
    "SOUK_ALLOWED_HOSTS": HOST,
}


def main() -> None:
    """Start PostgreSQL, Redis and web; measure; stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--webhooks", type=int, default=WEBHOOKS, help="in each turn of a round")
    arguments, _ = parser.parse_known_args()
    from marketplace.config.embedded import postgres, redis

    with tempfile.TemporaryDirectory(prefix="souk-slow-", dir="/tmp") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL runs as another user where we run as root
        sockets = folder / "run"
        stack.callback(postgres.start(folder / "postgres", socket_folder=sockets, log=folder / "postgres.log").stop)
        stack.callback(redis.start(folder / "redis", socket_folder=sockets, log=folder / "redis.log").stop)
        os.environ.update(environment(postgres.url_for(sockets), folder), REDIS_URL=redis.url_for(sockets), **SETTINGS)
        (folder / "static").mkdir()
        poll = prepare()
        with serving(folder) as port:
            figures = measure(port, poll, arguments.rounds, arguments.webhooks)
    publish("slow_visitors", figures)


def prepare() -> bytes:
    """An account with a waiting job; the request that waits for its log."""
    set_up()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    from marketplace.accounts import api_keys
    from marketplace.accounts.scopes import Scope
    from tests import stage

    alice = stage.organisation("alice", usd_micros=50 * stage.DOLLAR)
    stage.node()
    job = stage.submit(alice)
    user = alice.members.get()
    key = api_keys.issue(user=user, organisation=alice, name="benchmark", scopes=tuple(Scope))[1]
    target = f"/api/v1/jobs/{job.pk}/logs?wait_seconds=10"
    return f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[int]:
    """The port of the web process."""
    from marketplace.config.embedded import children, processes

    listener = socket.create_server((HOST, 0), backlog=processes.BACKLOG)
    port = listener.getsockname()[1]
    child = children.start(processes.web(listener, dict(os.environ), folder / "web.log"))
    try:
        addresses = processes.Addresses(HOST, port)
        children.wait_until(child, lambda: processes.answers(addresses, port), seconds=READY_SECONDS)
        yield port
    finally:
        child.stop()
        listener.close()


def measure(port: int, poll: bytes, rounds: int, webhooks: int) -> dict[str, Any]:
    """Milliseconds of webhooks alone, and beside polls and slow clients, in turns."""
    load_of_others = os.getloadavg()[0]  # before our own
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    for _ in range(rounds):
        alone.append(send_webhooks(port, webhooks))
        with crowd(port, poll):
            time.sleep(SETTLE_SECONDS)
            beside.append(send_webhooks(port, webhooks))
    ratios = [p99(slow) / p99(quick) for slow, quick in zip(beside, alone, strict=True)]
    return {
        "polls": POLLS,
        "slow_clients": SLOW_CLIENTS,
        "rounds": rounds,
        "webhooks_per_turn": webhooks,
        "alone_p50_ms": round(statistics.median(map(statistics.median, alone)), 1),
        "alone_p99_ms": round(statistics.median(map(p99, alone)), 1),
        "beside_p50_ms": round(statistics.median(map(statistics.median, beside)), 1),
        "beside_p99_ms": round(statistics.median(map(p99, beside)), 1),
        "beside_p99_ms_range": [round(min(map(p99, beside)), 1), round(max(map(p99, beside)), 1)],
        "p99_ratio": round(statistics.median(ratios), 2),
        "load_of_others": round(load_of_others, 1),
    }


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def send_webhooks(port: int, count: int) -> list[float]:
    """How many milliseconds each took, on a connection of its own."""
    taken = []
    for _ in range(count):
        event = {"id": f"evt_{uuid4().hex}", "type": "benchmark", "created": int(time.time()), "data": {"object": {}}}
        body = json.dumps({"object": "event", "livemode": False, "api_version": "2025-01-01"} | event).encode()
        stamp = str(int(time.time()))
        signature = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {"Stripe-Signature": f"t={stamp},v1={signature}", "Content-Type": "application/json"}
        started = time.perf_counter()
        connection = HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
        connection.request("POST", "/api/v1/stripe/webhook", body, headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        taken.append((time.perf_counter() - started) * 1000)
        if answer.status != 200:
            raise SystemExit(f"a webhook was answered with {answer.status}")
    return taken


@contextlib.contextmanager
def crowd(port: int, poll: bytes) -> Iterator[None]:
    """All of them, until the block ends: one thread moves them, as they have next to nothing to do."""
    is_over = threading.Event()
    polls = [_connect(port, poll) for _ in range(POLLS)]
    slow = [_connect(port, SLOW_HEAD) for _ in range(SLOW_CLIENTS)]
    mover = threading.Thread(target=_move, args=(port, poll, polls, slow, is_over))
    mover.start()
    try:
        yield
    finally:
        is_over.set()
        mover.join()
        for one in polls + slow:
            one.close()


def _move(
    port: int, poll: bytes, polls: list[socket.socket], slow: list[socket.socket], is_over: threading.Event
) -> None:
    while not is_over.wait(SLOW_PIECE_SECONDS):
        for place, one in enumerate(slow):
            try:
                one.sendall(b"x")
            except OSError:  # cut for its slowness: the next one comes
                slow[place] = _connect(port, SLOW_HEAD)
        for place, one in enumerate(polls):
            with contextlib.suppress(BlockingIOError):
                one.setblocking(False)
                if one.recv(65536):
                    one.sendall(poll)
                else:
                    polls[place] = _connect(port, poll)


def _connect(port: int, sent: bytes) -> socket.socket:
    one = socket.create_connection((HOST, port), ANSWER_SECONDS)
    one.sendall(sent)
    return one


if __name__ == "__main__":
    main()
