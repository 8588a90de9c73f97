"""Finds an engine that is there and computes nothing: dead inside, hung, or answering errors alone."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from runtimes.serve.config import ServeConfig
from runtimes.serve.door import Door
from runtimes.serve.engines.base import Engine
from runtimes.serve.errors import ServeError
from runtimes.serve.warm import get_token

FAILURES_MAX = 2  # one may be bad luck
LOOKS_A_SPAN = 4


@dataclass(frozen=True)
class Watch:
    """How closely an engine is watched."""

    quiet_seconds: float = 60.0  # without anything from the engine, and it is asked
    token_seconds: float = 60.0  # within which one token must come, however busy it is


async def watch(engine: Engine, config: ServeConfig, door: Door, socket_path: str, settings: Watch) -> None:
    """Returns never; raises ServeError once the engine did not give one token, twice in a row.

    An engine that sends something to somebody is alive, and not disturbed; one that answers with errors is asked.
    """
    failures, errors, asked_at = 0, door.errors, time.monotonic()
    while True:
        await asyncio.sleep(settings.quiet_seconds / LOOKS_A_SPAN)
        is_quiet = time.monotonic() - max(door.moved_at, asked_at) >= settings.quiet_seconds
        if not is_quiet and door.errors == errors and not failures:
            continue
        errors = door.errors
        try:
            await get_token(engine, config, door, socket_path, seconds=settings.token_seconds)
        except ServeError as error:
            failures += 1
            if failures >= FAILURES_MAX:
                raise ServeError(
                    f"the engine is there, and gave no token {failures} times in a row: {error}"
                ) from error
        else:
            failures = 0
        errors, asked_at = door.errors, time.monotonic()
