"""A node's devices in a check: real chains and real memory on the processor, signed calls, and ways to lie."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import torch

from marketplace.nodes.device_challenges import calibration
from provider_agent.protocol import CheckOpen, CheckTask, CheckVerdict, DeviceTask, RecallStep
from runtimes.probe.challenge.chain import Chain
from runtimes.probe.challenge.memory import Filling
from tests.integration.nodes.agent import Agent

CPU = torch.device("cpu")
KIND = {
    "size": 128,
    "grid": 4,
    "reach": 0.01,
    "seconds": 0.05,
    "rounds_min": 8,
    "rounds_max": 8,
    "openings": 6,
    "memory_share": 1.0,
    "memory_mib_max": 2,
    "memory_block_words": 1024,
    "memory_passes": 4,
    "memory_reach": 0.1,
    "memory_bytes_per_second_min": 1e9,
}


def small_table(**changes: Any) -> dict[str, Any]:
    """A calibration whose work takes milliseconds."""
    return {"margin": 3.0, "kinds": {"cpu": KIND | changes, "gpu": KIND | changes}, "models": []}


@dataclass
class Cards:
    """All devices of one node, and the agent that speaks for them."""

    agent: Agent
    waits: Callable[[str], None] = lambda step: None  # called before each answer is sent: a relay's way, a slow card
    alter: Callable[[str, dict[str, Any]], None] = lambda step, body: None  # changes an answer before it is signed
    kept: float = 1.0  # the share of memory that is really kept
    chains: dict[str, Chain] = field(default_factory=dict)
    task: CheckTask | None = None

    def answer(self, check_id: UUID) -> CheckVerdict:
        """The whole check."""
        self.begin(check_id)
        self.reveal(check_id, self.commit(check_id))
        return self.recall(check_id)

    def begin(self, check_id: UUID) -> CheckTask:
        self.task = CheckTask.model_validate(self.send(check_id, "begin", {}))
        return self.task

    def compute(self) -> dict[str, Any]:
        """One device after the other; what is timed is the whole."""
        assert self.task is not None
        for device in self.task.devices:
            self.chains[device.uuid] = self.chain_of(device)
        return {"devices": [{"uuid": uuid, "roots": chain.roots} for uuid, chain in self.chains.items()]}

    def chain_of(self, device: DeviceTask) -> Chain:
        chain = Chain(device.seed, size=device.size, grid=device.grid, rounds=device.rounds, device=CPU)
        chain.run()
        return chain

    def commit(self, check_id: UUID) -> CheckOpen:
        body = self.compute()
        return CheckOpen.model_validate(self.send(check_id, "commit", body))

    def reveal(self, check_id: UUID, opened: CheckOpen) -> None:
        for uuid, openings in opened.openings.items():
            for index, (round_number, block) in enumerate(openings):
                shown = self.chains[uuid].reveal(round_number, block)
                self.send(check_id, "reveal", {"uuid": uuid, "index": index, **shown})

    def recall(self, check_id: UUID) -> CheckVerdict:
        assert self.task is not None
        filled = {device.uuid: fill(device) for device in self.task.devices}
        step = RecallStep.model_validate(self.send(check_id, "filled", {}))
        while step.verdict is None:
            devices = [{"uuid": uuid, "sums": self._sums(filling, step.key)} for uuid, filling in filled.items()]
            body = {"step": step.step, "devices": devices if step.key else []}
            step = RecallStep.model_validate(self.send(check_id, "recall" if step.key else "empty", body))
        return step.verdict

    def send(self, check_id: UUID, step: str, body: dict[str, Any], *, status: int = 0) -> Any:
        """One signed call; an empty step is a recall that needs no device."""
        self.waits(step)
        self.alter(step, body)
        path = f"/api/agent/v1/checks/{check_id}/{'recall' if step == 'empty' else step}"
        answered = self.agent.post(path, json.dumps(body).encode())
        assert answered.status_code == (status or (204 if step == "reveal" else 200)), answered.content
        return answered.json() if answered.content else None

    def _sums(self, filling: Filling, key: str) -> str:
        sums = filling.read(key)
        kept = int(len(sums) * self.kept)
        return base64.b64encode(sums[:kept] + bytes(len(sums) - kept)).decode()


def fill(device: DeviceTask) -> Filling:
    return Filling(
        device.seed,
        blocks=device.memory_blocks,
        block_words=device.memory_block_words,
        passes=device.memory_passes,
        device=CPU,
    )


def measured_seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def use_table(monkeypatch: Any, table: dict[str, Any]) -> None:
    monkeypatch.setattr(calibration, "_table", lambda: table)
