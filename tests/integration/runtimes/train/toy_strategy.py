"""A training strategy that exists in tests alone, and a program that trains with it: a class and a row in the table.

python -m runtimes.launch tests.integration.runtimes.train.toy_strategy
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from runtimes.train.__main__ import main
from runtimes.train.parallel import Ranks
from runtimes.train.strategies.base import Strategy
from runtimes.train.strategies.registry import STRATEGIES


class Toy(Strategy):
    """Sums each gradient over the ranks, one after the other, when all passes of the step are done."""

    layout = "toy"

    def wrap(
        self, units: Iterator[nn.Module], ranks: Ranks, dtype: torch.dtype, *, offloads: bool = False
    ) -> nn.Module:
        """The model as it is."""
        *_, model = units
        return model.to(ranks.device)

    def scale_loss(self, ranks: Ranks, targets: int) -> float:
        """Gradients are summed, not averaged."""
        return 1 / targets

    def clip_gradients(self, model: nn.Module, norm_max: float) -> torch.Tensor:
        """Sum over the ranks, then clip."""
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        return super().clip_gradients(model, norm_max)


if __name__ == "__main__":
    STRATEGIES["toy"] = "tests.integration.runtimes.train.toy_strategy:Toy"
    main()
