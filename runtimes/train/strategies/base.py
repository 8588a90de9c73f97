"""What a training strategy decides. The loop calls these methods in the order of this file.

The defaults are those of a synchronous data-parallel training whose state has the names of the plain model: every rank
computes its part of each batch, and all ranks apply the same averaged gradient. A checkpoint then holds every tensor
under its plain name, whole or in shards, so that any such strategy loads it on any number of ranks.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.tensor import DTensor

from runtimes.train.checkpoint_reader import load_state
from runtimes.train.container import Container
from runtimes.train.parallel import Ranks, join_ranks, leave_ranks, sum_over_ranks
from runtimes.train.quantization.linear import is_packed

PLAIN_NAMES = "plain-names"  # the layout of a checkpoint: tensors under the plain model's names, whole or in shards


@dataclass(frozen=True)
class Agreement:
    """What all ranks know after a step, the same on each."""

    loss: float  # summed over the ranks
    stop: bool  # at least one rank received a stop signal
    save: bool  # at least one rank finds a checkpoint due


class Strategy(ABC):
    """How the ranks of one training share its work. It holds no state of a training: all state is in the arguments."""

    layout = PLAIN_NAMES  # of the checkpoints that it writes, and the only one that it loads

    def join(self, container: Container) -> Ranks:
        """How ranks meet: by default in one process group. `leave` closes it."""
        return join_ranks(container)

    def leave(self) -> None:
        """Leave the ranks in order. The last checkpoint must have been waited for: its thread uses their groups."""
        leave_ranks()

    @abstractmethod
    def wrap(
        self, units: Iterator[nn.Module], ranks: Ranks, dtype: torch.dtype, *, offloads: bool = False
    ) -> nn.Module:
        """The model to train with. `units`: its decoder blocks, then the model itself, on the CPU.

        Each unit has its weights when it comes, the same on every rank; those of the next one are not in memory yet.
        The result is called as the model is, is on `ranks.device`, and computes in `dtype`. Its parameters stay in
        float32, frozen ones in `dtype`; the optimizer is made over those that are not frozen. `offloads`: they lie
        in the node's memory while no block computes with them, and so do their gradients and moments;
        config.OFFLOADING_STRATEGIES names who can.
        """

    def scale_loss(self, ranks: Ranks, targets: int) -> float:
        """The factor of a rank's summed loss that makes the final gradient the mean over the global batch's `targets`.

        By default gradients are averaged over the ranks, which divides by their number: the factor undoes that.
        """
        return ranks.world_size / max(1, targets)

    def accumulate(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
        """What one micro-batch's forward and backward pass run in; `is_last`: after it the gradient must be final."""
        return nullcontext()

    def drop_gathered(self, model: nn.Module) -> None:
        """Forget what was gathered of other ranks' weights: the weights are about to be changed in place."""
        del model  # by default nothing is gathered

    def clip_gradients(self, model: nn.Module, norm_max: float) -> torch.Tensor:
        """Scale the final gradients down to `norm_max`; returns the norm over all ranks' shards, shape (), before."""
        return nn.utils.clip_grad_norm_(model.parameters(), norm_max, foreach=True)

    def agree(self, ranks: Ranks, *, loss: float, stop: bool, save: bool) -> Agreement:
        """What all ranks decide in the same way after a step, from each one's findings: by default one small sum."""
        total, stops, saves = sum_over_ranks(ranks, [loss, float(stop), float(save)])
        return Agreement(total, stop=stops > 0, save=saves > 0)

    def saved_state(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, *, trained_only: bool = False
    ) -> dict[str, Any]:
        """What a checkpoint saves, as torch's distributed checkpoint writes it. All ranks call it.

        `trained_only`: without what is frozen, and without buffers.
        """
        weights, moments = get_state_dict(model, optimizer)
        if trained_only:
            trained = dict(trained_parameters(model))
            weights = {name: weight for name, weight in weights.items() if name in trained}
        return {"model": weights, "optimizer": moments}

    def load_state(
        self,
        folder: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        *,
        trained_only: bool = False,
        copies: Mapping[str, Any] | None = None,
    ) -> None:
        """Fill model and optimizer from a checkpoint of this layout, by any number of ranks. All ranks call it.

        `copies`: further tensors that it has (callbacks/copies.py), which are filled in place.

        Whatever a stranger saved is read as data (checkpoint_reader.py); raises BadCheckpoint. The optimizer's settings
        stay those of the configuration: another one's would end the first step, as nobody's fault.
        """
        state = self.saved_state(model, optimizer, trained_only=trained_only)
        settings = copy.deepcopy(state["optimizer"]["param_groups"])
        load_state({**state, **(copies or {})}, folder, ranks.checkpoint)
        state["optimizer"]["param_groups"] = settings
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(strict=not trained_only),  # the checkpoint was held to name all that `state` has
        )

    def is_finite(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        *,
        copies: Iterable[torch.Tensor] = (),
    ) -> bool:
        """Whether weights, moments and copies have neither NaN nor infinity, on any rank. All ranks call it.

        What is in four bits was looked at before it was: its bytes are no numbers of their tensor's dtype.
        """
        weights = [parameter for name, parameter in model.named_parameters() if not is_packed(name)]
        moments = [value for state in optimizer.state.values() for value in state.values()]
        tensors = [item for item in [*weights, *moments, *copies] if isinstance(item, torch.Tensor)]
        mine = [item.to_local() if isinstance(item, DTensor) else item for item in tensors]
        return sum_over_ranks(ranks, [float(sum(not torch.isfinite(item).all() for item in mine))]) == [0.0]

    def whole_weights(
        self, model: nn.Module, *, trained_only: bool = False
    ) -> Iterator[tuple[list[str], torch.Tensor]]:
        """The whole weights, gathered one at a time, each with its names in the plain model: tied ones have several.

        All ranks must take every one. `trained_only`: of what is not frozen; no more is gathered.
        """
        weights: dict[str, Any] = dict(trained_parameters(model)) if trained_only else get_model_state_dict(model)
        parameters = model.named_parameters(remove_duplicate=False)
        same = {name.removeprefix("module."): id(parameter) for name, parameter in parameters}
        groups: dict[int | str, list[str]] = {}  # alike on every rank: each group is gathered once
        for name in weights:
            groups.setdefault(same.get(name, name), []).append(name)
        for names in groups.values():
            weight = weights[names[0]]
            yield names, (weight.full_tensor() if isinstance(weight, DTensor) else weight).detach()


def trained_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """What is not frozen, by plain names: DDP puts its own before them."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name.removeprefix("module."), parameter
