"""What an objective is: a loss summed over what it counts, and figures that say how it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from runtimes.train.loss import MicroBatch
from runtimes.train.parallel import Ranks, sum_over_ranks


class Figures:
    """Means over what was counted since the last `means`, by name; of every rank together."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._count: torch.Tensor | None = None

    def add(self, count: torch.Tensor, **sums: torch.Tensor) -> None:
        """Sums, each of shape (), over `count` things that are counted. Nothing waits for the device."""
        self._count = count.double() if self._count is None else self._count + count
        for name, value in sums.items():
            self._sums[name] = value.double() + self._sums.get(name, 0)

    def means(self, ranks: Ranks) -> dict[str, float]:
        """The means; empty where nothing was added. All ranks call it, having added alike, and it begins anew."""
        if self._count is None:
            return {}
        names, count, sums = list(self._sums), float(self._count), [float(each) for each in self._sums.values()]
        self._sums, self._count = {}, None
        counted, *summed = sum_over_ranks(ranks, [count, *sums])
        return {name: each / max(1.0, counted) for name, each in zip(names, summed, strict=True)}


class Objective(ABC):
    """One objective of one training."""

    digest: str | None = None  # of what else than model and data it depends on: a resume compares it

    @abstractmethod
    def loss(self, model: nn.Module, batch: MicroBatch, figures: Figures) -> torch.Tensor:
        """Summed over the micro-batch's targets, shape (); adds to `figures`. A sample of number -1 counts nothing."""

    @abstractmethod
    def saved_state(self) -> dict[str, Any]:
        """Tensors that a checkpoint keeps beside the strategy's state; the same on every rank."""

    @abstractmethod
    def load_state(self, folder: Path, digest: object, ranks: Ranks) -> None:
        """Fill `saved_state` from a checkpoint whose trainer wrote `digest`. All ranks call it.

        Raises BadCheckpoint where it has another state than the training began with.
        """
