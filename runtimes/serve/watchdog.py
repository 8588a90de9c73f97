"""Finds an engine that runs and computes nothing: its compute thread ended, it hangs, or it answers only errors."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from runtimes.serve.config import ServeConfig
from runtimes.serve.engines.base import Engine
from runtimes.serve.errors import ServeError
from runtimes.serve.listener import Listener
from runtimes.serve.warm import get_token

FAILURES_MAX = 2  # one may be bad luck
LOOKS_A_SPAN = 4


@dataclass(frozen=True)
class Watch:
    """How closely an engine is watched."""

    idle_seconds: float = 60.0  # without anything from the engine, after which it is probed
    token_seconds: float = 60.0  # within which one token must come, however busy it is


async def watch(engine: Engine, config: ServeConfig, listener: Listener, socket_path: str, settings: Watch) -> None:
    """Returns never; raises ServeError once the engine did not give one token, twice in a row.

    An engine that sends data to any caller is alive, and is not probed; one that answers with errors is probed.
    """
    failures, errors, probed_at = 0, listener.errors, time.monotonic()
    while True:
        await asyncio.sleep(settings.idle_seconds / LOOKS_A_SPAN)
        is_idle = time.monotonic() - max(listener.moved_at, probed_at) >= settings.idle_seconds
        if not is_idle and listener.errors == errors and not failures:
            continue
        errors = listener.errors
        try:
            await get_token(engine, config, listener, socket_path, seconds=settings.token_seconds)
        except ServeError as error:
            failures += 1
            if failures >= FAILURES_MAX:
                raise ServeError(
                    f"the engine is there, and gave no token {failures} times in a row: {error}"
                ) from error
        else:
            failures = 0
        errors, probed_at = listener.errors, time.monotonic()
