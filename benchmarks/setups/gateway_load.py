"""The load of benchmarks/gateway.py, in a process of its own that does little else than read and write sockets.

Three kinds. `closed`: so many clients that each ask again when they have their answer: what the subject can take.
`open`: requests come when they come (a seeded Poisson schedule), and each answer's time counts from when it was due, so
that a subject that stalls is charged for everybody who came meanwhile (no coordinated omission). `hold`: so many
streams are opened and stay; a line is printed when all of them have begun, and they end when standard input does.

    python -m benchmarks.setups.gateway_load '{"kind": "open", "port": 9000, "rate": 500, "seconds": 5, ...}'
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import statistics
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

CONNECTIONS_MAX = 4096
OVERDUE_SECONDS_MAX = 20.0  # after the last request was due
HOLD_SECONDS_MAX = 20.0  # until all streams have begun
CONNECT_AT_ONCE = 64
HEAD_BYTES_MAX = 64 * 1024
NANO = 1_000_000_000


@dataclass
class Load:
    """What is asked, and how."""

    kind: str
    port: int
    body: str
    path: str = "/v1/chat/completions"
    key: str = "sk-none"
    connections: int = 16
    seconds: float = 3.0
    warm_seconds: float = 0.5
    rate: float = 0
    seed: int = 1

    def request(self) -> bytes:
        """The bytes of each request."""
        body = self.body.encode()
        lines = [
            f"POST {self.path} HTTP/1.1",
            "host: souk",
            f"authorization: Bearer {self.key}",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Seen:
    """What came of it."""

    seconds: list[float] = field(default_factory=list)  # of each answer, after the warm-up
    first: list[float] = field(default_factory=list)  # until its first event, of streams
    events: int = 0
    failed: int = 0
    why: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    since: float = 0.0


class Caller(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._is_asking = driver, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_asking:
            self._is_asking = False
            self._driver.answered(self, self._due, "connection lost")
        self._driver.lost(self)

    def ask(self, due: float) -> None:
        """Send the request that was due then."""
        self._due, self._is_asking = due, True
        self._buffer, self._left, self._last, self._has_begun = b"", -1, b"", False
        self._transport.write(self._driver.request)

    def close(self) -> None:
        self._is_asking = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._is_asking:
            return
        if self._left == -1:
            data = self._buffer + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = data
                return
            head = data[:end].lower()
            if not head.startswith(b"http/1.1 200"):
                self._end(data[9:12].decode(errors="replace"))
                self._transport.abort()
                return
            at = head.find(b"\r\ncontent-length:")
            self._left = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else -2
            data = data[end + 4 :]
        if self._left >= 0:
            self._left -= len(data)
            if self._left <= 0:
                self._end("")
            return
        events = (self._last[-5:] + data).count(b"data: ")
        if events and not self._has_begun:
            self._has_begun = True
            self._driver.begun(self._due)
        self._driver.seen.events += events
        self._last = (self._last + data)[-7:]
        if self._last == b"\r\n0\r\n\r\n":
            self._end("")

    def _end(self, why: str) -> None:
        self._is_asking = False
        self._driver.answered(self, self._due, why)


class Driver:
    """All of the connections; a subclass says when each asks."""

    def __init__(self, load: Load) -> None:
        self.load, self.request, self.seen = load, load.request(), Seen()
        self.loop = asyncio.get_running_loop()
        self.callers: list[Caller] = []
        self.is_over = False

    async def connect(self, count: int) -> None:
        """So many connections, some at a time."""
        for start in range(0, count, CONNECT_AT_ONCE):
            wanted = range(start, min(count, start + CONNECT_AT_ONCE))
            made = await asyncio.gather(
                *(self.loop.create_connection(lambda: Caller(self), "127.0.0.1", self.load.port) for _ in wanted)
            )
            self.callers += [caller for _, caller in made]

    def begun(self, due: float) -> None:
        """A stream's first event is there."""
        if due >= self.seen.since:
            self.seen.first.append(time.perf_counter() - due)

    def answered(self, caller: Caller, due: float, why: str) -> None:
        """An answer is complete, or is not to be had."""
        if why:
            self.seen.failed += 1
            self.seen.why[why] = self.seen.why.get(why, 0) + 1
        elif due >= self.seen.since:
            self.seen.seconds.append(time.perf_counter() - due)
        self.seen.ended += 1
        if not self.is_over:
            self.free(caller)

    def free(self, caller: Caller) -> None:
        """This connection has nothing to do."""

    def lost(self, caller: Caller) -> None:
        """This connection is gone."""
        if caller in self.callers:
            self.callers.remove(caller)

    def close(self) -> None:
        self.is_over = True
        for caller in list(self.callers):
            caller.close()


class Closed(Driver):
    """Each asks again at once."""

    def free(self, caller: Caller) -> None:
        caller.ask(time.perf_counter())

    async def measure(self) -> dict[str, Any]:
        await self.connect(self.load.connections)
        self.seen.since = time.perf_counter() + self.load.warm_seconds
        for caller in self.callers:
            caller.ask(time.perf_counter())
        await asyncio.sleep(self.load.warm_seconds)
        before, events = self.seen.ended - self.seen.failed, self.seen.events
        began = time.perf_counter()
        await asyncio.sleep(self.load.seconds)
        took = time.perf_counter() - began
        done, events = self.seen.ended - self.seen.failed - before, self.seen.events - events
        self.close()
        return {"per_second": done / took, "events_per_second": events / took}


class Open(Driver):
    """Each request has a time at which it is due, and takes a connection that is free, or waits for one."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._free: deque[Caller] = deque()
        self._waiting: deque[float] = deque()
        self._alarm = Alarm(self.loop, self._due_now)
        self._all_done = asyncio.Event()

    def free(self, caller: Caller) -> None:
        if self._waiting:
            caller.ask(self._waiting.popleft())
        else:
            self._free.append(caller)
        if self.seen.ended == len(self._schedule):
            self._all_done.set()

    def lost(self, caller: Caller) -> None:
        super().lost(caller)
        if caller in self._free:
            self._free.remove(caller)

    async def measure(self) -> dict[str, Any]:
        await self.connect(self.load.connections)
        self._free.extend(self.callers)
        chance, at = random.Random(self.load.seed), 0.0
        self._schedule, self._next = [], 0
        while at < self.load.warm_seconds + self.load.seconds:
            at += chance.expovariate(self.load.rate)
            self._schedule.append(at)
        self._began = time.perf_counter()
        self.seen.since = self._began + self.load.warm_seconds
        self._alarm.set(self._began + self._schedule[0])
        total = self.load.warm_seconds + self.load.seconds + OVERDUE_SECONDS_MAX
        try:
            await asyncio.wait_for(self._all_done.wait(), total)
        except TimeoutError:
            self.seen.why["never"] = len(self._schedule) - self.seen.ended
            self.seen.failed += len(self._schedule) - self.seen.ended
        self.close()
        return {"asked_per_second": len(self._schedule) / (self.load.warm_seconds + self.load.seconds)}

    def _due_now(self) -> None:
        now = time.perf_counter() - self._began
        schedule, count = self._schedule, len(self._schedule)
        while self._next < count and schedule[self._next] <= now:
            due = self._began + schedule[self._next]
            self._next += 1
            if self._free:
                self._free.pop().ask(due)
            else:
                self._waiting.append(due)
        if self._next < count:
            self._alarm.set(self._began + schedule[self._next])


class Hold(Driver):
    """Streams that stay open."""

    async def measure(self) -> dict[str, Any]:
        await self.connect(self.load.connections)
        for start in range(0, len(self.callers), CONNECT_AT_ONCE):
            for caller in self.callers[start : start + CONNECT_AT_ONCE]:
                caller.ask(time.perf_counter())
            await asyncio.sleep(0.02)
        began = time.perf_counter()
        while len(self.seen.first) + self.seen.failed < self.load.connections:
            if time.perf_counter() - began > HOLD_SECONDS_MAX:
                break
            await asyncio.sleep(0.02)
        print(json.dumps({"begun": len(self.seen.first), "after_s": time.perf_counter() - began}), flush=True)
        await self.loop.run_in_executor(None, sys.stdin.readline)
        is_open = sum(caller._is_asking for caller in self.callers)
        self.close()
        return {"open": is_open}


class Alarm:
    """Calls at a time to the microsecond: the event loop's own timers count in milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Any) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._call = call
        loop.add_reader(self._file, self._rings)

    def set(self, at: float) -> None:
        """Ring at this time of time.perf_counter, which is the monotonic clock."""
        when = max(1, int(at * NANO))
        value = (ctypes.c_long * 4)(0, 0, when // NANO, when % NANO)
        self._libc.timerfd_settime(self._file, 1, ctypes.byref(value), None)

    def _rings(self) -> None:
        os.read(self._file, 8)
        self._call()


KINDS: dict[str, type[Closed] | type[Open] | type[Hold]] = {"closed": Closed, "open": Open, "hold": Hold}


async def drive(load: Load) -> dict[str, Any]:
    """Make the load, and tell what came of it: times in milliseconds."""
    driver = KINDS[load.kind](load)
    results = await driver.measure()
    seen = driver.seen
    return results | {
        "answers": len(seen.seconds),
        "ended": seen.ended,
        "failed": seen.failed,
        "why": seen.why,
        **quantiles("", seen.seconds),
        **quantiles("first_", seen.first),
    }


def quantiles(name: str, samples: list[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    if len(samples) < 2:
        return {}
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return {f"{name}p50_ms": cuts[49] * 1000, f"{name}p99_ms": cuts[98] * 1000}


def main() -> None:
    """One load, from the first argument."""
    load = Load(**json.loads(sys.argv[1]))
    if load.connections > CONNECTIONS_MAX:
        raise SystemExit(f"at most {CONNECTIONS_MAX} connections")
    print(json.dumps(uvloop.run(drive(load))), flush=True)


if __name__ == "__main__":
    main()
