"""Restarts the agent's loops when they end, and gives up with the reason when one keeps failing.

A loop that raises or returns counts as failed: it is logged by name and restarted after a pause that doubles. After
FAILURES_IN_A_ROW_MAX failures in a row the supervisor gives up and the agent leaves with LoopFailed, so that its
heartbeats end too; systemd or the keeper starts it again, and the programs go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from provider_agent.errors import LoopFailed
from provider_agent.protocol.backoff import FULL_JITTER, backoff_seconds

FAILURES_IN_A_ROW_MAX = 6
RESTART_SECONDS_FIRST = 0.5
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # a loop that ran this long has not failed "in a row"
ERROR_CHARACTERS_MAX = 200

log = logging.getLogger(__name__)

Run = Callable[[], Awaitable[None]]


@dataclass
class LoopStatus:
    """How often a loop has failed since the agent started."""

    name: str
    failures: int = 0
    last_error: str = ""


class LoopSupervisor:
    """The loops of one agent. `has_failed` is set once `error` says why the agent must leave."""

    def __init__(self, *, on_failure: Callable[[], None] = lambda: None) -> None:
        self.has_failed = asyncio.Event()
        self.error: Exception | None = None
        self._on_failure = on_failure
        self._loops: dict[str, LoopStatus] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(
        self, name: str, run: Run, *, is_endless: bool = True, leaves_on: tuple[type[Exception], ...] = ()
    ) -> None:
        """Start a loop and keep it running; an error of `leaves_on` ends the agent at once, without a restart.

        A loop that is not endless has done its work when it returns.
        """
        status = self._loops[name] = LoopStatus(name)
        keeping = self._keep(status, run, is_endless=is_endless, leaves_on=leaves_on)
        self._tasks.append(asyncio.create_task(keeping, name=name))

    def status(self) -> list[dict[str, Any]]:
        """Each loop by its name, its failures since the agent started, and the last error."""
        return [
            {"name": loop.name, "failures": loop.failures, "last_error": loop.last_error}
            for loop in self._loops.values()
        ]

    async def close(self) -> None:
        """Cancel every loop and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(
        self, status: LoopStatus, run: Run, *, is_endless: bool, leaves_on: tuple[type[Exception], ...]
    ) -> None:
        try:
            await keep_running(
                status,
                run,
                is_endless=is_endless,
                leaves_on=leaves_on,
                failures_max=FAILURES_IN_A_ROW_MAX,
                on_failure=self._on_failure,
            )
        except Exception as error:
            self.error = self.error or error
            self.has_failed.set()


async def keep_running(
    status: LoopStatus,
    run: Run,
    *,
    is_endless: bool = True,
    leaves_on: tuple[type[Exception], ...] = (),
    failures_max: int | None = None,
    on_failure: Callable[[], None] = lambda: None,
) -> None:
    """Run and restart one loop until it is cancelled; raises LoopFailed after `failures_max` failures in a row.

    `failures_max` None means no limit: for the loops of one lease, which must not end the leases of others.
    """
    in_a_row = 0
    while True:
        began = asyncio.get_running_loop().time()
        error = await _run_once(run, leaves_on=leaves_on)
        if error is None and not is_endless:
            return
        if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
            in_a_row = 0
        in_a_row += 1
        status.failures += 1
        status.last_error = _describe(error)
        log.error("A loop failed. loop=%s failures=%s: %s", status.name, in_a_row, status.last_error, exc_info=error)
        on_failure()
        if failures_max is not None and in_a_row >= failures_max:
            times = f"{in_a_row} times in a row, the last time"
            raise LoopFailed(f"The loop {status.name} failed {times}: {status.last_error}")
        first, most = RESTART_SECONDS_FIRST, RESTART_SECONDS_MAX
        await asyncio.sleep(backoff_seconds(in_a_row, first=first, most=most, jitter=FULL_JITTER))


async def _run_once(run: Run, *, leaves_on: tuple[type[Exception], ...]) -> BaseException | None:
    """Run the loop; returns what it raised, None when it returned."""
    try:
        await run()
    except leaves_on:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error  # something that the loop awaited was cancelled, the loop itself was not
    except Exception as error:
        return error
    return None


def _describe(error: BaseException | None) -> str:
    if error is None:
        return "it returned"
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
