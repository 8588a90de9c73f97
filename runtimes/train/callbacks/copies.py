"""Further sets of the trained weights: their average over the steps, and those of the best evaluation.

Each set has the shape and the place of the parameters, in float32: with `fsdp2` and `hsdp` a rank holds its own part of
it, with `ddp` the whole. So a checkpoint saves them as it saves weights, and any number of ranks resumes from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from runtimes.train.config import TrainConfig
from runtimes.train.strategies.base import Strategy, trained_parameters

AVERAGE = "ema"
BEST = "best"


class Copies:
    """The sets that a configuration asks for; without any, nothing is held and nothing is done."""

    def __init__(self, model: nn.Module, strategy: Strategy, config: TrainConfig) -> None:
        self._model, self._strategy = model, strategy
        self._decay = config.ema
        has_best = config.early_stop is not None and config.early_stop.export_best
        names = [name for name, is_wanted in ((AVERAGE, self._decay is not None), (BEST, has_best)) if is_wanted]
        self._parameters = dict(trained_parameters(model)) if names else {}
        self._sets = {name: {key: p.detach().clone() for key, p in self._parameters.items()} for name in names}
        self._is_lent = False

    def update(self, step: int) -> None:
        """Move the average towards the weights; called after each optimizer step that changed them. `step`: from 0.

        The decay grows from 0.1 as (1 + step) / (10 + step), which is how long the first weights are forgotten by: with
        0.999 from the beginning they would still be a third of the average after a thousand steps.
        """
        if self._decay is None:
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(_parts(self._sets[AVERAGE]), _parts(self._parameters), 1 - decay)

    def keep_best(self) -> None:
        """Keep the weights as they are evaluated now as the best."""
        if BEST in self._sets:
            with torch.no_grad():
                torch._foreach_copy_(_parts(self._sets[BEST]), _parts(self._parameters))

    @contextmanager
    def as_evaluated(self) -> Iterator[None]:
        """The model has the weights that are evaluated and sampled from: the average, where there is one."""
        with self._swapped(AVERAGE):
            yield

    @contextmanager
    def as_exported(self) -> Iterator[None]:
        """The model has the weights that the customer gets: of the best evaluation where asked for, else as evaluated.

        What is evaluated or sampled within has the same ones.
        """
        with self._swapped(BEST if BEST in self._sets else AVERAGE):
            yield

    def state(self) -> dict[str, Any]:
        """What a checkpoint saves beside weights and moments, and what it is loaded into, in place."""
        return {name: dict(found) for name, found in self._sets.items()}

    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        return [tensor for found in self._sets.values() for tensor in found.values()]

    @contextmanager
    def _swapped(self, name: str) -> Iterator[None]:
        """Exchange a set with the parameters, one tensor at a time: no second copy is in memory."""
        if name not in self._sets or self._is_lent:
            yield
            return
        self._is_lent = True
        self._swap(name)
        try:
            yield
        finally:
            self._swap(name)
            self._is_lent = False

    def _swap(self, name: str) -> None:
        self._strategy.drop_gathered(self._model)  # what it gathered has the values from before
        with torch.no_grad():
            for mine, other in zip(_parts(self._parameters), _parts(self._sets[name]), strict=True):
                kept = mine.clone()
                mine.copy_(other)
                other.copy_(kept)


def _parts(tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """This rank's part of each."""
    found = [tensor.detach() for tensor in tensors.values()]
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in found]
