"""How much work a check demands of a device, and how long it may take: the table is calibration.json.

A device is held to two bounds. Its own: what it reported when it was measured, so that nobody is sold faster than they
show. Its model's, where the table has it: so that no other model is sold as an H100. Both have a margin.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from marketplace.nodes.device_challenges.proofs import ChainPlan
from marketplace.nodes.models import Device

TABLE: Final = Path(__file__).with_name("calibration.json")
DTYPE: Final = "float32"  # the chain's arithmetic
WORK_SLACK_SECONDS: Final = 1.0  # two requests, and the files between agent and program
RECALL_SLACK_SECONDS: Final = 0.15  # of one step, beyond what an empty step takes
SUMS_MAX: Final = 131_072  # of all devices of a node, so that one answer stays under a megabyte
WORD_BYTES: Final = 4
MIB: Final = 2**20


@dataclass(frozen=True)
class DevicePlan:
    """What one device has to do, and within which time."""

    seed: str
    size: int
    grid: int
    rounds: int
    openings: int
    memory_blocks: int
    memory_block_words: int
    memory_passes: int
    work_seconds_max: float
    recall_seconds_max: float  # of one step

    @property
    def chain(self) -> ChainPlan:
        """The part that proofs.py needs."""
        return ChainPlan(self.seed, self.size, self.grid, self.rounds)

    @property
    def flops(self) -> float:
        """Of the whole chain: 2 n^3 a round."""
        return 2.0 * self.size**3 * self.rounds

    def as_dict(self) -> dict[str, Any]:
        """For the database."""
        return asdict(self)


def plan_for(device: Device, seed: str, *, devices: int) -> DevicePlan:
    """The work for one of `devices` devices that are checked at once."""
    kind, margin = _table()["kinds"][device.kind], _table()["margin"]
    speed = chain_flops_needed(device)
    flops_a_round = 2.0 * kind["size"] ** 3
    rounds = min(max(round(kind["seconds"] * speed / flops_a_round), kind["rounds_min"]), kind["rounds_max"])
    block_words, blocks = _blocks(device, kind, devices)
    bandwidth = max(device.memory_bytes_per_second, kind["memory_bytes_per_second_min"]) * kind["memory_reach"]
    return DevicePlan(
        seed=seed,
        size=kind["size"],
        grid=kind["grid"],
        rounds=rounds,
        openings=kind["openings"],
        memory_blocks=blocks,
        memory_block_words=block_words,
        memory_passes=kind["memory_passes"],
        work_seconds_max=round(WORK_SLACK_SECONDS + margin * rounds * flops_a_round / speed, 3),
        recall_seconds_max=round(RECALL_SLACK_SECONDS + margin * blocks * block_words * WORD_BYTES / bandwidth, 3),
    )


def chain_flops_needed(device: Device) -> float:
    """FLOP/s that the chain should show: of its own claim or of its model, whichever is more."""
    reach = _table()["kinds"][device.kind]["reach"]
    claimed = device.claimed_flops_per_second or device.flops_per_second
    own = float(claimed.get(DTYPE) or min(claimed.values(), default=0.0))
    return max(own * float(reach), _model_min(device.model), 1.0)


def figure_from(device: Device, shown_flops_per_second: float) -> float:
    """What a chain's speed means for the device, in the probe's figures."""
    return shown_flops_per_second / float(_table()["kinds"][device.kind]["reach"])


def _blocks(device: Device, kind: dict[str, Any], devices: int) -> tuple[int, int]:
    """Words a block (a power of two) and how many blocks."""
    mib = min(device.memory_mib * kind["memory_share"], kind["memory_mib_max"])
    block_words, words = int(kind["memory_block_words"]), int(mib * MIB) // WORD_BYTES
    while words // block_words > SUMS_MAX // devices:
        block_words *= 2
    return block_words, max(words // block_words, 1)


def _model_min(model: str) -> float:
    """The minimum of the first row whose words are all in the model's name; 0 for a model that the table lacks."""
    words = set(re.findall(r"[a-z0-9]+", model.lower()))
    for row in _table()["models"]:
        if set(row["words"].lower().split()) <= words:
            return float(row["flops_per_second_min"])
    return 0.0


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table
