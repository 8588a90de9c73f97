"""Answers the marketplace's checks while the node is idle: work on all devices at once, and memory read back.

A check gives way to a lease: the program is ended before the lease's program starts, and the marketplace, which sees
the lease, withdraws the check.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from provider_agent.benchmark import machine_to_ourselves, probe_spec
from provider_agent.errors import AgentError, ExecutorFailed, Refused
from provider_agent.executors.base import Handle, LaunchSpec, log_path
from provider_agent.journal import FACT_CHECK
from provider_agent.machine import give_back_memory
from provider_agent.porter import Porter
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


class Checks:
    """At most one check at a time; each is answered once by this agent."""

    def __init__(self, porter: Porter) -> None:
        self._porter = porter
        self._task: asyncio.Task[None] | None = None
        self._check_id: UUID | None = None

    def hear(self, check_id: UUID | None, *, is_idle: bool) -> None:
        """What the newest sync said; begins, goes on, or gives up."""
        if check_id != self._check_id or not is_idle:
            self.give_way()
        if check_id is not None and check_id != self._check_id and is_idle:
            self._check_id = check_id
            self._task = asyncio.create_task(_answer(self._porter, check_id), name="check")

    @property
    def is_busy(self) -> bool:
        """Whether one is being answered."""
        return self._task is not None and not self._task.done()

    def give_way(self) -> None:
        """End the program; a lease waits for the devices until it is gone."""
        if self._task is not None and not self._task.done():
            log.info("The check gives way. check_id=%s", self._check_id)
            self._task.cancel()

    async def close(self) -> None:
        """End the program before the agent ends."""
        self.give_way()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


async def _answer(porter: Porter, check_id: UUID) -> None:
    """Answer one check; what goes wrong is logged, and the marketplace draws its conclusion from the silence."""
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX), machine_to_ourselves(porter), _all_devices(porter):
            log.info("Check started. check_id=%s", check_id)
            verdict = await _run(porter, check_id)
    except Refused as error:
        log.log(logging.INFO if error.status == OVER_STATUS else logging.ERROR, "The check is over: %s", error)
        return
    except (AgentError, OSError, TimeoutError, ValueError) as error:
        log.error("The check could not be answered: %s check_id=%s", error, check_id)
        return
    finally:
        give_back_memory()
    porter.journal.save_fact(FACT_CHECK, verdict.model_dump_json())
    failed = [finding for finding in verdict.findings if not finding.is_passed]
    log.info("Check %s. check_id=%s", verdict.state, check_id)
    for finding in failed:
        log.warning(
            "Check failed on %s: %s was %g, needed %g. %s",
            *(finding.device, finding.what, finding.measured, finding.needed, finding.message),
        )


async def _run(porter: Porter, check_id: UUID) -> CheckVerdict:
    executor = porter.executor
    spec = probe_spec(porter, "runtimes.probe.challenge", list(porter.devices.values()), [])
    spec.argv.extend(["--folder", executor.seen_work(spec.folder)])
    spec.work.mkdir(parents=True)
    try:
        handle = await executor.start(spec)
        try:
            return await _exchange(porter, check_id, _Program(porter, spec, handle))
        finally:
            await executor.kill(handle)
            await executor.cleanup(handle)
    finally:
        shutil.rmtree(spec.folder, ignore_errors=True)


class _Program:
    """The challenge's processes, by the files of runtimes/probe/challenge/exchange.py."""

    def __init__(self, porter: Porter, spec: LaunchSpec, handle: Handle) -> None:
        self._porter, self._spec, self._handle = porter, spec, handle

    def say(self, name: str, message: Any) -> None:
        """Write one message whole."""
        partial = self._spec.work / f".{name}.partial"
        partial.write_text(json.dumps(message))
        partial.chmod(0o644)  # read by the container's user
        partial.replace(self._spec.work / f"{name}.json")

    async def hear(self, name: str) -> Any:
        """Wait for one message; raises ExecutorFailed when the program has ended without it."""
        path, looked = self._spec.work / f"{name}.json", 0.0
        while not path.exists():
            looked += POLL_SECONDS
            if looked >= LIFE_POLL_SECONDS:
                looked = 0.0
                ended = await self._porter.executor.poll(self._handle)
                if ended is not None and not path.exists():
                    raise ExecutorFailed(f"The challenge ended ({ended}): {self._last_words()}")
            await asyncio.sleep(POLL_SECONDS)
        return json.loads(path.read_text())

    def _last_words(self) -> str:
        return log_path(self._spec.folder).read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]


async def _exchange(porter: Porter, check_id: UUID, program: _Program) -> CheckVerdict:
    client, uuids = porter.client, list(porter.devices)
    # 1. Everything is loaded before the clock runs; then all devices begin at once.
    for index in range(len(uuids)):
        await program.hear(f"ready-{index}")
    task = await client.begin_check(check_id)
    tasks = {device.uuid: device.model_dump() for device in task.devices}
    program.say("task", {"devices": [tasks.get(uuid) for uuid in uuids]})
    # 2. Commit, and show what is asked for.
    asked = {index: uuid for index, uuid in enumerate(uuids) if uuid in tasks}
    commitments = [
        DeviceCommitment(uuid=uuid, roots=(await program.hear(f"commit-{index}"))["roots"])
        for index, uuid in asked.items()
    ]
    opened = await client.commit_check(check_id, CheckCommit(devices=commitments))
    program.say("open", {"devices": [opened.openings.get(uuid, []) for uuid in uuids]})
    for index, uuid in asked.items():
        for number in range(len(opened.openings[uuid])):
            shown = await program.hear(f"reveal-{index}-{number}")
            await client.reveal_check(check_id, CheckReveal(uuid=uuid, index=number, **shown))
    # 3. Memory.
    for index in asked:
        await program.hear(f"filled-{index}")
    return await _recall(porter, task, program, asked)


async def _recall(porter: Porter, task: CheckTask, program: _Program, asked: dict[int, str]) -> CheckVerdict:
    step: RecallStep = await porter.client.fill_check(task.check_id)
    reads = 0
    for _ in range(RECALL_STEPS_MAX):
        devices = []
        if step.key:
            program.say(f"recall-{reads}", {"key": step.key})
            for index, uuid in asked.items():
                sums = (await program.hear(f"recalled-{index}-{reads}"))["sums"]
                devices.append(DeviceRecall(uuid=uuid, sums=sums))
            reads += 1
        step = await porter.client.recall_check(task.check_id, CheckRecall(step=step.step, devices=devices))
        if step.verdict is not None:
            program.say(f"recall-{reads}", {"key": ""})
            return step.verdict
    raise ExecutorFailed(f"The check asked for more than {RECALL_STEPS_MAX} steps.")


@contextlib.asynccontextmanager
async def _all_devices(porter: Porter) -> AsyncIterator[None]:
    """Every device's turn: a lease's program starts once the check is gone."""
    async with contextlib.AsyncExitStack() as held:
        for turn in porter.turns.values():
            await held.enter_async_context(turn)
        yield
