"""The time of a step, from what devices and links were measured to do.

A rank computes while it exchanges, so a step takes as long as the slower of both, and then the optimizer's pass over
weights, moments and gradients. An estimate, for comparing settings and devices: nothing is promised by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtimes.plan.advice import SLOWDOWN
from runtimes.plan.memory import Place, batches_of
from runtimes.plan.shapes import ModelShape, flops_per_token
from runtimes.train.config import TrainConfig

UTILISATION = 0.55  # of a large matrix product's speed, as the probe measures it, that a training reaches
OPTIMIZER_BYTES = 28  # a parameter: weight and two moments read and written, the gradient read


@dataclass(frozen=True)
class Speeds:
    """Measured, of one device: FLOP/s in the type that it computes in, bytes/s of its memory and of its links."""

    flops: float
    memory_bytes: float = 0.0  # 0: not measured, and taken for no time
    link_bytes: float = 0.0  # between devices of a node
    node_link_bytes: float = 0.0  # between nodes


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step on the rank that has most to do."""

    computing: float
    exchanging: float
    updating: float

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return max(self.computing, self.exchanging) + self.updating


def step_time(shape: ModelShape, config: TrainConfig, place: Place, speeds: Speeds) -> StepTime:
    """Raises ValueError where a device's speed is not above 0."""
    if speeds.flops <= 0:
        raise ValueError("the device's FLOP/s must be above 0")
    batches, lora = batches_of(config, place), config.lora
    adapters = shape.layers * shape.adapter_parameters(lora.rank, lora.targets) if lora else 0
    flops = flops_per_token(shape, length=batches.length, trained_base=lora is None, adapters=adapters)
    tokens = batches.tokens * batches.passes
    computing = flops * tokens * SLOWDOWN[config.activation_checkpointing] / (UTILISATION * speeds.flops)
    trained = adapters or shape.parameters
    shards = {"ddp": 1, "hsdp": place.ranks // place.nodes}.get(config.strategy, place.ranks)
    half = config.dtype == "bfloat16" or (config.dtype == "auto" and place.is_gpu)
    size = 2 if half else 4
    # 1. Inside the group that shares the model: parameters twice a pass, gradients once.
    share = (shards - 1) / shards
    moved = share * (2 * size * shape.parameters * batches.passes + 4 * trained)
    is_within = shards <= place.ranks // place.nodes
    exchanging = _seconds(moved, speeds.link_bytes if is_within else speeds.node_link_bytes)
    # 2. Between groups that each have it whole: their part of the gradients, there and back.
    copies = place.ranks // shards
    if copies > 1:
        link = speeds.node_link_bytes if place.nodes > 1 else speeds.link_bytes
        exchanging += _seconds(2 * 4 * trained / shards * (copies - 1) / copies, link)
    return StepTime(computing, exchanging, _seconds(OPTIMIZER_BYTES * trained / shards, speeds.memory_bytes))


def _seconds(amount: float, rate: float) -> float:
    return amount / rate if rate > 0 else 0.0
