"""How many sequences of each batch a rank computes: equally many, or as many as its measured speed allows.

The gradient is the mean over the whole batch's targets, whoever computed which part, and the parts are taken in order:
the samples and, to rounding, the losses are those of equal shares. All ranks make the same number of passes, since each
gathers the shards of all; a slow rank has fewer sequences in each.

What is measured is the forward pass of the decoder's blocks alone, between what each of them gathers and gives back:
there no rank waits for another.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from runtimes.contract import EventKind, EventWriter
from runtimes.train.data.order import rank_part
from runtimes.train.model import decoder_blocks
from runtimes.train.parallel import Ranks, gather_results, print_line

WARM_STEPS = 1  # of a start, which nothing is measured in: kernels are chosen, memory is taken
MEASURED_EVERY = 10  # steps between two measurements
KEPT_SHARE = 0.5  # of a rank's former speed, beside the newest
GAIN_MIN = 0.05  # of a step's time, for which the shares are changed


class Shares:
    """How the ranks share out a batch of `batch_size` sequences; `adapt` changes it, on all ranks alike."""

    def __init__(self, batch_size: int, ranks: Ranks, events: EventWriter, *, measured: bool) -> None:
        self.counts = equal_shares(batch_size, ranks.world_size)
        self._most_at_once = max(self.counts)  # whatever the shares become: more might not fit into the memory
        self._ranks, self._events = ranks, events
        self._is_measured = measured and ranks.world_size > 1
        self._speeds: list[float] = []  # of each rank, sequences a second of its blocks

    @property
    def mine(self) -> slice:
        """This rank's part of the batch, contiguous."""
        first = sum(self.counts[: self._ranks.rank])
        return slice(first, first + self.counts[self._ranks.rank])

    def passes(self, micro_batch_size: int | None) -> int:
        """How many every rank makes, so that none computes more than `micro_batch_size` sequences at once, nor more
        than an equal share.
        """
        return -(-max(self.counts) // min(micro_batch_size or self._most_at_once, self._most_at_once))

    def is_measured(self, done: int) -> bool:
        """Whether the step that begins is measured; `done`: the steps that this start has finished."""
        return self._is_measured and done >= WARM_STEPS and (done - WARM_STEPS) % MEASURED_EVERY == 0

    def adapt(self, step: int, seconds: float, sequences: int) -> None:
        """After a measured step: what this rank's blocks took for how many sequences. All ranks call it."""
        found = gather_results(self._ranks, lambda: sequences / max(seconds, 1e-9))
        before = self._speeds or found
        self._speeds = [KEPT_SHARE * old + (1 - KEPT_SHARE) * new for old, new in zip(before, found, strict=True)]
        counts = shares_by_speed(sum(self.counts), self._speeds)
        if _slowest(counts, self._speeds) > (1 - GAIN_MIN) * _slowest(self.counts, self._speeds):
            return
        self.counts = counts
        self._events.write(EventKind.SHARED, step=step, sequences=counts)
        print_line(self._ranks, f"step {step}: the ranks now compute {', '.join(map(str, counts))} sequences each step")


def equal_shares(batch_size: int, world_size: int) -> list[int]:
    """Sequences of each rank, at most 1 apart."""
    parts = [rank_part(batch_size, rank, world_size) for rank in range(world_size)]
    return [part.stop - part.start for part in parts]


def shares_by_speed(batch_size: int, speeds: Sequence[float]) -> list[int]:
    """Sequences of each rank for which the last one is done soonest; at least 1 each, where there are so many."""
    if batch_size < len(speeds):
        return equal_shares(batch_size, len(speeds))
    counts = [1] * len(speeds)
    done = [(2 / speed, rank) for rank, speed in enumerate(speeds)]  # when it would be, with one more
    heapq.heapify(done)
    for _ in range(batch_size - len(speeds)):
        _, rank = done[0]
        counts[rank] += 1
        heapq.heapreplace(done, ((counts[rank] + 1) / speeds[rank], rank))
    return counts


def _slowest(counts: Sequence[int], speeds: Sequence[float]) -> float:
    return max(count / speed for count, speed in zip(counts, speeds, strict=True))


class BlockClock:
    """Seconds in which the decoder's blocks compute forward, without what they wait for.

    Made before the model is wrapped: what a strategy gathers and gives back around a block is then outside.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._is_on, self._device = False, device
        self._marks: list[tuple[Any, Any]] = []
        self._began: Any = None
        for block in decoder_blocks(model):
            block.register_forward_pre_hook(self._begin)
            block.register_forward_hook(self._end)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is computed within is counted; `seconds` then says how much."""
        self._marks.clear()
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def seconds(self) -> float:
        """Of what was counted last; waits for the device."""
        if self._device.type != "cuda":
            return float(sum(end - begin for begin, end in self._marks))
        torch.cuda.synchronize(self._device)
        return float(sum(begin.elapsed_time(end) for begin, end in self._marks)) / 1000

    def _begin(self, block: nn.Module, _: Any) -> None:
        if self._is_on and block.training and torch.is_grad_enabled():
            self._began = self._now()

    def _end(self, block: nn.Module, _: Any, __: Any) -> None:
        if self._is_on and self._began is not None:
            self._marks.append((self._began, self._now()))
            self._began = None

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        make: Any = torch.cuda.Event  # untyped there
        event = make(enable_timing=True)
        event.record()
        return event
