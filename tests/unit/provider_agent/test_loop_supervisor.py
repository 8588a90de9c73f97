"""A loop that ends is restarted, and after a named number of failures in a row the agent leaves with the reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from provider_agent import loop_supervisor
from provider_agent.errors import LoopFailed, Refused
from provider_agent.loop_supervisor import FAILURES_IN_A_ROW_MAX, LoopSupervisor

SECONDS_MAX = 10.0
Run = Callable[[], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_supervisor, "RESTART_SECONDS_FIRST", 0.001)
    monkeypatch.setattr(loop_supervisor, "RESTART_SECONDS_MAX", 0.001)


def raises(error: BaseException) -> Run:
    async def run() -> None:
        raise error

    return run


async def returns() -> None:
    """A loop that ends as if its work was done."""


async def goes_on() -> None:
    await asyncio.Event().wait()


def supervise(*loops: tuple[str, Run], until: Callable[[LoopSupervisor], bool] = lambda _: False) -> LoopSupervisor:
    """Run the loops until the supervisor gives up, or `until` holds."""

    async def run() -> LoopSupervisor:
        supervisor = LoopSupervisor()
        for name, loop in loops:
            supervisor.start(name, loop, leaves_on=(Refused,))
        async with asyncio.timeout(SECONDS_MAX):
            while not supervisor.has_failed.is_set() and not until(supervisor):
                await asyncio.sleep(0.001)
        await supervisor.close()
        return supervisor

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("run", "message"),
    [(raises(ZeroDivisionError("by zero")), "ZeroDivisionError: by zero"), (returns, "it returned")],
)
def test_loop_that_keeps_failing_is_named_and_ends_the_agent(
    run: Run, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        supervisor = supervise(("sync", goes_on), ("watchdog", run))
    assert isinstance(supervisor.error, LoopFailed)
    assert str(supervisor.error).startswith(f"The loop watchdog failed {FAILURES_IN_A_ROW_MAX} times in a row")
    assert message in str(supervisor.error)
    assert supervisor.error.exit_code == 11
    assert sum("loop=watchdog" in line for line in caplog.messages) == FAILURES_IN_A_ROW_MAX


def test_loop_that_fails_once_is_restarted_and_its_status_keeps_the_failure() -> None:
    runs: list[int] = []

    async def fails_first() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise OSError("the disk is full")
        await asyncio.Event().wait()

    supervisor = supervise(("health", fails_first), ("sync", goes_on), until=lambda _: len(runs) == 2)
    assert supervisor.error is None
    status = {loop["name"]: loop for loop in supervisor.status()}
    assert status["health"] == {"name": "health", "failures": 1, "last_error": "OSError: the disk is full"}
    assert status["sync"] == {"name": "sync", "failures": 0, "last_error": ""}


def test_failures_far_apart_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_supervisor, "STEADY_SECONDS", 0.0)
    many = FAILURES_IN_A_ROW_MAX * 2
    supervisor = supervise(("health", returns), until=lambda all_loops: all_loops.status()[0]["failures"] > many)
    assert supervisor.error is None


def test_an_error_that_ends_the_agent_is_not_retried() -> None:
    refused = Refused(401, "unknown_node", "who?", {})
    supervisor = supervise(("sync", raises(refused)))
    assert supervisor.error is refused


def test_a_cancel_that_nobody_of_ours_asked_for_is_a_failure() -> None:
    """A loop that awaits a task which somebody cancelled would end without a word."""
    supervisor = supervise(("health", raises(asyncio.CancelledError())))
    assert isinstance(supervisor.error, LoopFailed)


def test_a_loop_that_is_to_run_once_may_return() -> None:
    async def run() -> LoopSupervisor:
        supervisor = LoopSupervisor()
        supervisor.start("machine", returns, is_endless=False)
        await asyncio.sleep(0.02)
        await supervisor.close()
        return supervisor

    supervisor = asyncio.run(run())
    assert supervisor.error is None
    assert supervisor.status() == [{"name": "machine", "failures": 0, "last_error": ""}]


def test_each_failure_is_reported_at_once() -> None:
    seen: list[int] = []

    async def run() -> None:
        supervisor = LoopSupervisor(on_failure=lambda: seen.append(supervisor.status()[0]["failures"]))
        supervisor.start("health", returns)
        async with asyncio.timeout(SECONDS_MAX):
            await supervisor.has_failed.wait()
        await supervisor.close()

    asyncio.run(run())
    assert seen == list(range(1, FAILURES_IN_A_ROW_MAX + 1))
