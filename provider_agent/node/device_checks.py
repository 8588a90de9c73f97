"""Answers the marketplace's device checks while the node is idle: work on all devices at once, memory read back.

A device check is cancelled by a lease: its program is ended before the lease's program starts, and the marketplace,
which sees the lease, withdraws the check.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, ExecutorFailed, Refused
from provider_agent.executors.base import Handle, LaunchSpec, log_path
from provider_agent.journal import FACT_CHECK
from provider_agent.node.benchmark import hold_benchmark_lock, probe_spec
from provider_agent.node.own_programs import run_program
from provider_agent.node.speeds import give_back_memory
from provider_agent.protocol import (
    CheckCommit,
    CheckRecall,
    CheckReveal,
    CheckTask,
    CheckVerdict,
    DeviceCommitment,
    DeviceRecall,
    RecallStep,
)

CHECK_SECONDS_MAX = 1200.0
POLL_SECONDS = 0.005
LIFE_POLL_SECONDS = 0.5
RECALL_STEPS_MAX = 64
LOG_CHARACTERS_SHOWN = 600
OVER_STATUS = 409

log = logging.getLogger(__name__)


class DeviceChecks:
    """At most one device check at a time; each is answered once by this agent."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()  # the newest, and those whose programs are still being ended
        self._check_id: UUID | None = None

    def accept(self, check_id: UUID | None, *, is_idle: bool) -> None:
        """Start, continue or cancel the check, as the newest sync answer demands."""
        if check_id != self._check_id or not is_idle:
            self.cancel()
        if check_id is not None and check_id != self._check_id and is_idle:
            self._check_id = check_id
            task = asyncio.create_task(_answer(self._context, check_id), name="check")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def is_busy(self) -> bool:
        """Whether one is being answered, or ended."""
        return bool(self._tasks)

    def cancel(self) -> None:
        """End the check's program; a lease waits for the devices until it has ended."""
        for task in self._tasks:
            log.info("The device check is cancelled. check_id=%s", self._check_id)
            task.cancel()

    async def close(self) -> None:
        """End the programs before the agent ends."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _answer(context: AgentContext, check_id: UUID) -> None:
    """Answer one device check. A failure is logged; without an answer the marketplace counts the check as failed."""
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX), hold_benchmark_lock(context), _all_devices(context):
            log.info("Device check started. check_id=%s", check_id)
            verdict = await _run(context, check_id)
    except Refused as error:
        log.log(logging.INFO if error.status == OVER_STATUS else logging.ERROR, "The device check is over: %s", error)
        return
    except (AgentError, OSError, TimeoutError, ValueError) as error:
        log.error("The device check could not be answered: %s check_id=%s", error, check_id)
        return
    finally:
        give_back_memory()
    context.journal.save_fact(FACT_CHECK, verdict.model_dump_json())
    failed = [finding for finding in verdict.findings if not finding.is_passed]
    log.info("Device check %s. check_id=%s", verdict.state, check_id)
    for finding in failed:
        log.warning(
            "Device check failed on %s: %s was %g, needed %g. %s",
            *(finding.device, finding.what, finding.measured, finding.needed, finding.message),
        )


async def _run(context: AgentContext, check_id: UUID) -> CheckVerdict:
    executor = context.executor
    spec = probe_spec(context, "runtimes.probe.challenge", list(context.devices.values()), [])
    spec.argv.extend(["--folder", executor.seen_work(spec.folder)])
    async with run_program(executor, spec) as handle:
        return await _exchange(context, check_id, _Program(context, spec, handle))


class _Program:
    """The challenge's processes, by the files of runtimes/probe/challenge/exchange.py."""

    def __init__(self, context: AgentContext, spec: LaunchSpec, handle: Handle) -> None:
        self._context, self._spec, self._handle = context, spec, handle

    def send(self, name: str, message: Any) -> None:
        """Write one message whole."""
        partial = self._spec.work / f".{name}.partial"
        partial.write_text(json.dumps(message))
        partial.chmod(0o644)  # read by the container's user
        partial.replace(self._spec.work / f"{name}.json")

    async def receive(self, name: str) -> Any:
        """Wait for one message; raises ExecutorFailed when the program has ended without it."""
        path, looked = self._spec.work / f"{name}.json", 0.0
        while not path.exists():
            looked += POLL_SECONDS
            if looked >= LIFE_POLL_SECONDS:
                looked = 0.0
                ended = await self._context.executor.poll(self._handle)
                if ended is not None and not path.exists():
                    raise ExecutorFailed(f"The challenge ended ({ended}): {self._last_output()}")
            await asyncio.sleep(POLL_SECONDS)
        return json.loads(path.read_text())

    def _last_output(self) -> str:
        return log_path(self._spec.folder).read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]


async def _exchange(context: AgentContext, check_id: UUID, program: _Program) -> CheckVerdict:
    client, uuids = context.client, list(context.devices)
    # 1. Everything is loaded before the clock runs; then all devices begin at once.
    for index in range(len(uuids)):
        await program.receive(f"ready-{index}")
    task = await client.begin_check(check_id)
    tasks = {device.uuid: device.model_dump() for device in task.devices}
    program.send("task", {"devices": [tasks.get(uuid) for uuid in uuids]})
    # 2. Commit, and reveal what is requested.
    asked = {index: uuid for index, uuid in enumerate(uuids) if uuid in tasks}
    commitments = [
        DeviceCommitment(uuid=uuid, roots=(await program.receive(f"commit-{index}"))["roots"])
        for index, uuid in asked.items()
    ]
    opened = await client.commit_check(check_id, CheckCommit(devices=commitments))
    program.send("open", {"devices": [opened.openings.get(uuid, []) for uuid in uuids]})
    for index, uuid in asked.items():
        for number in range(len(opened.openings[uuid])):
            shown = await program.receive(f"reveal-{index}-{number}")
            await client.reveal_check(check_id, CheckReveal(uuid=uuid, index=number, **shown))
    # 3. Memory.
    for index in asked:
        await program.receive(f"filled-{index}")
    return await _recall(context, task, program, asked)


async def _recall(context: AgentContext, task: CheckTask, program: _Program, asked: dict[int, str]) -> CheckVerdict:
    step: RecallStep = await context.client.fill_check(task.check_id)
    reads = 0
    for _ in range(RECALL_STEPS_MAX):
        devices = []
        if step.key:
            program.send(f"recall-{reads}", {"key": step.key})
            for index, uuid in asked.items():
                sums = (await program.receive(f"recalled-{index}-{reads}"))["sums"]
                devices.append(DeviceRecall(uuid=uuid, sums=sums))
            reads += 1
        step = await context.client.recall_check(task.check_id, CheckRecall(step=step.step, devices=devices))
        if step.verdict is not None:
            program.send(f"recall-{reads}", {"key": ""})
            return step.verdict
    raise ExecutorFailed(f"The check asked for more than {RECALL_STEPS_MAX} steps.")


@contextlib.asynccontextmanager
async def _all_devices(context: AgentContext) -> AsyncIterator[None]:
    """Hold every device: a lease's program starts once the check has ended."""
    async with contextlib.AsyncExitStack() as held:
        for lock in context.device_locks.values():
            await held.enter_async_context(lock)
        yield
