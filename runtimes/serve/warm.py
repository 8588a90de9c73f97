"""Ready means one real token that came through the whole path: a health check proves nothing of an engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from runtimes.contract import EventKind, EventWriter
from runtimes.serve.config import ServeConfig
from runtimes.serve.engine_client import NoAnswer, send_request
from runtimes.serve.engines.base import Engine
from runtimes.serve.errors import ServeError
from runtimes.serve.listener import Listener
from runtimes.serve.process import EngineProcess

LOAD_SECONDS_MAX = 3600.0
POLL_SECONDS = 0.2
REPORT_SECONDS = 15.0
HEALTH_SECONDS_MAX = 10.0
FIRST_TOKEN_SECONDS_MAX = 600.0  # kernels may be compiled for it


async def wait_until_up(process: EngineProcess, engine_socket: str, events: EventWriter) -> None:
    """Until the engine answers its health check; raises ServeError when it ends or takes too long."""
    clock = asyncio.get_running_loop().time
    began = reported_at = clock()
    while clock() - began < LOAD_SECONDS_MAX:
        if not process.is_alive:
            raise await process.why_ended()
        try:
            status, _ = await send_request(engine_socket, "/health", seconds=HEALTH_SECONDS_MAX)
            if status == 200:
                return
        except NoAnswer:
            pass
        if clock() - reported_at >= REPORT_SECONDS:
            reported_at = clock()
            events.write(EventKind.LOADING, stage="engine", seconds=round(reported_at - began, 1))
        await asyncio.wait({process.ended}, timeout=POLL_SECONDS)
    raise ServeError(f"the engine was not up after {LOAD_SECONDS_MAX:.0f} s")


async def get_token(
    engine: Engine, config: ServeConfig, listener: Listener, socket_path: str, *, seconds: float
) -> None:
    """Get one real token on the path that callers' requests take; raises ServeError."""
    probe = engine.probe(config)
    try:
        status, body = await send_request(
            socket_path, probe.path, body=probe.body, seconds=seconds, header=listener.own_header
        )
        answer = json.loads(body)
    except NoAnswer as error:
        raise ServeError(f"the engine computes nothing: {error}") from error
    except ValueError as error:
        raise ServeError("the engine's answer is not JSON") from error
    if status != 200 or not isinstance(answer, dict) or not engine.is_answer(answer):
        raise ServeError(f"the engine computes nothing: it answered {status} {body[:300].decode(errors='replace')}")


async def read_facts(engine_socket: str) -> dict[str, Any]:
    """The facts that an engine reports about itself; none where it has no such page."""
    try:
        status, body = await send_request(engine_socket, "/facts", seconds=HEALTH_SECONDS_MAX)
        facts = json.loads(body) if status == 200 else {}
    except (NoAnswer, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
