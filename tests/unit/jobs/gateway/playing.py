"""One request through the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.unit.jobs.gateway.stage import Stage, stage

Scenario = Callable[[Stage], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario, **settings: Any) -> None:
    async def played() -> None:
        async with stage(tmp_path, **settings) as up:
            await scenario(up)

    asyncio.run(played())
