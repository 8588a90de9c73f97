"""Tells each half minute what was served: requests by the door's count, tokens by the engine's own."""

from __future__ import annotations

import asyncio

from runtimes.contract import EventKind, EventWriter
from runtimes.serve.asking import NoAnswer, ask
from runtimes.serve.door import Door
from runtimes.serve.engines.base import Counters

TELL_SECONDS = 30.0
ASK_SECONDS_MAX = 10.0


async def tell_served(door: Door, engine_socket: str, counters: Counters, events: EventWriter, *, every: float) -> None:
    """Until cancelled; a span in which nothing changed is not told."""
    told: dict[str, float] = {}
    while True:
        await asyncio.sleep(every)
        now = await read_served(door, engine_socket, counters)
        if now != told:
            events.write(EventKind.SERVED, **now)
            told = now


async def read_served(door: Door, engine_socket: str, counters: Counters) -> dict[str, float]:
    """What was served since the start, and what is going on; without the engine's part where it does not answer."""
    served: dict[str, float] = {"requests": door.requests, "in_flight": door.in_flight, "errors": door.errors}
    try:
        status, body = await ask(engine_socket, "/metrics", seconds=ASK_SECONDS_MAX)
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
