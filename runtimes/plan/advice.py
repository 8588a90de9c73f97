"""Whether a training fits into a device, and the nearest settings of the job file that do.

No advice changes what is learned: only how it is computed (`activation_checkpointing`, `micro_batch_size`, `strategy`,
`offload`) or on how many devices. What a setting costs in time is measured (runtimes/README.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from runtimes.plan.memory import Memory, Place, batches_of, host_bytes, reckon_memory
from runtimes.shapes.shape import ModelShape
from runtimes.train.config import CHECKPOINTINGS, OFFLOADING_STRATEGIES, TrainConfig

OUTSIDE_GPU_BYTES = 3 << 28  # CUDA's context and the libraries of a process
OUTSIDE_CPU_BYTES = 1 << 29  # interpreter and libraries: 310 to 385 MiB of its own were measured, and 132 of files
# Of what comes and goes in a step, what glibc 2.36 keeps as freed blocks that nothing later fits into: 1.6 was seen.
# One of 100 trainings needed more than 1.5, and none more than this (benchmarks/results/train_plans.json).
KEPT_SHARE = 2.0
CERTAIN = 0.95  # of the reckoned bytes: below that no measurement of ours has come
SLOWDOWN = {"none": 1.0, "selective": 1.08, "full": 1.2}  # of a step, on one H200
SLOWDOWN_OF_HALVING = 1.02  # the micro-batch
SLOWDOWN_OF_OFFLOADING = 4.0  # not measured: it is there to come last
RANKS_TRIED_MAX = 512


@dataclass(frozen=True)
class Fit:
    """Settings that fit, as the job file names them; `memory` with them."""

    settings: tuple[tuple[str, Any], ...]
    memory: Memory
    slowdown: float
    host_bytes: int = 0  # of each node's memory, that they take in the devices' place


@dataclass(frozen=True)
class Advice:
    """Of one training on one kind of device. `needed_bytes`: of a device, at least."""

    memory: Memory
    needed_bytes: int
    fits: bool
    is_certain: bool  # where it does not fit: that it cannot
    nearest: tuple[Fit, ...]  # where it does not fit; the one that costs least time first
    ranks: int | None  # where it does not fit: how many devices would share it as it is, if any number would


def process_bytes(memory: Memory, place: Place) -> int:
    """Memory that is in use at the peak: the process has more than tensors there."""
    return memory.peak + (OUTSIDE_GPU_BYTES if place.is_gpu else OUTSIDE_CPU_BYTES)


def needed_bytes(memory: Memory, place: Place) -> int:
    """Memory of a device that holds this, whatever glibc keeps beside; what a GPU's allocator does is in the peak."""
    kept = 0 if place.is_gpu else int(KEPT_SHARE * memory.passing)
    return process_bytes(memory, place) + kept


def floor_bytes(shape: ModelShape, config: TrainConfig, place: Place) -> int:
    """Below so many bytes a device runs out of memory for certain, whatever its kind. Raises ModelMistake.

    0 for a model with experts: none was measured.
    """
    if shape.experts is not None:
        return 0
    kinds = [replace(place, is_gpu=is_gpu, memory_bytes=memory) for is_gpu in (True, False) for memory in (0, 1)]
    least = min(memory.peak - memory.allocator for memory in (reckon_memory(shape, config, each) for each in kinds))
    return int(CERTAIN * least)


def advise(shape: ModelShape, config: TrainConfig, place: Place) -> Advice:
    """What fits into `place.memory_bytes`, which must be known. Raises ModelMistake."""
    memory = reckon_memory(shape, config, place)
    needed = needed_bytes(memory, place)
    fits = needed <= place.memory_bytes
    return Advice(
        memory=memory,
        needed_bytes=needed,
        fits=fits,
        is_certain=not fits and place.memory_bytes < floor_bytes(shape, config, place),
        nearest=() if fits else tuple(_nearest(shape, config, place)),
        ranks=None if fits else _ranks_that_fit(shape, config, place),
    )


def _nearest(shape: ModelShape, config: TrainConfig, place: Place) -> list[Fit]:
    """For each way of checkpointing that saves more than the present one, the largest micro-batch that fits.

    Another strategy is tried where the present one never fits, and offloading where no strategy does.
    """
    found = []
    for strategy, offload in _ways(config, place):
        for checkpointing in CHECKPOINTINGS[CHECKPOINTINGS.index(config.activation_checkpointing) :]:
            first = batches_of(config, place).size // config.rows_per_sample
            for halvings, size in enumerate(_halved(first)):
                changed = replace(
                    config,
                    strategy=strategy,
                    offload=offload,
                    activation_checkpointing=checkpointing,
                    micro_batch_size=size,
                )
                memory = reckon_memory(shape, changed, place)
                if needed_bytes(memory, place) <= place.memory_bytes:
                    slowdown = SLOWDOWN[checkpointing] * SLOWDOWN_OF_HALVING**halvings
                    slowdown *= SLOWDOWN_OF_OFFLOADING if offload != config.offload else 1.0
                    settings = _differences(config, changed, is_smaller=size < first)
                    found.append(Fit(settings, memory, slowdown, host_bytes(shape, changed, place)))
                    break
        if found:
            break
    return sorted(found, key=lambda fit: fit.slowdown)


def _ways(config: TrainConfig, place: Place) -> Iterator[tuple[str, str]]:
    """Strategy and offload, the present ones first."""
    yield config.strategy, config.offload
    if config.strategy != "fsdp2" and place.ranks > 1:
        yield "fsdp2", config.offload
    if config.offload == "none" and place.is_gpu:
        yield (config.strategy if config.strategy in OFFLOADING_STRATEGIES else "fsdp2"), "all"


def _halved(size: int) -> Iterator[int]:
    while size > 1:
        yield size
        size //= 2
    yield 1


def _differences(before: TrainConfig, after: TrainConfig, *, is_smaller: bool) -> tuple[tuple[str, Any], ...]:
    keys = ["strategy", "offload", "activation_checkpointing"]
    changed: list[tuple[str, Any]] = [
        (key, getattr(after, key)) for key in keys if getattr(before, key) != getattr(after, key)
    ]
    return (*changed, *([("micro_batch_size", after.micro_batch_size)] if is_smaller else []))


def _ranks_that_fit(shape: ModelShape, config: TrainConfig, place: Place) -> int | None:
    ranks = place.ranks * 2
    while ranks <= min(config.global_batch_size, RANKS_TRIED_MAX):
        more = replace(place, ranks=ranks)
        if needed_bytes(reckon_memory(shape, config, more), more) <= place.memory_bytes:
            return ranks
        ranks *= 2
    return None
