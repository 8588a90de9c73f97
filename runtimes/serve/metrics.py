"""Reports every 30 seconds what was served: requests by the listener's count, tokens by the engine's own."""

from __future__ import annotations

import asyncio

from runtimes.contract import EventKind, EventWriter
from runtimes.serve.engine_client import NoAnswer, send_request
from runtimes.serve.engines.base import Counters
from runtimes.serve.listener import Listener

REPORT_SECONDS = 30.0
METRICS_SECONDS_MAX = 10.0


async def report_served(
    listener: Listener, engine_socket: str, counters: Counters, events: EventWriter, *, every: float
) -> None:
    """Until cancelled; a span in which nothing changed is not reported."""
    reported: dict[str, float] = {}
    while True:
        await asyncio.sleep(every)
        now = await read_served(listener, engine_socket, counters)
        if now != reported:
            events.write(EventKind.SERVED, **now)
            reported = now


async def read_served(listener: Listener, engine_socket: str, counters: Counters) -> dict[str, float]:
    """What was served since the start, and what is going on; without the engine's part where it does not answer."""
    served: dict[str, float] = {
        "requests": listener.requests,
        "in_flight": listener.in_flight,
        "errors": listener.errors,
    }
    try:
        status, body = await send_request(engine_socket, "/metrics", seconds=METRICS_SECONDS_MAX)
    except NoAnswer:
        return served
    sums = sum_metrics(body.decode(errors="replace")) if status == 200 else {}
    for key, name in (
        ("input_tokens", counters.input_tokens),
        ("output_tokens", counters.output_tokens),
        ("queued", counters.queued),
    ):
        if name in sums:
            served[key] = int(sums[name])
    return served


def sum_metrics(text: str) -> dict[str, float]:
    """The sum of all samples of each name, from the text format of Prometheus; lines that are none are passed over."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        try:
            number = float(value)
        except ValueError:
            continue
        name = name.partition("{")[0].strip()
        sums[name] = sums.get(name, 0.0) + number
    return sums
