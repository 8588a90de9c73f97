"""The cross-entropy of each next token that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from runtimes.train.loss import MicroBatch, summed_loss
from runtimes.train.objectives.base import Figures, Objective
from runtimes.train.parallel import Ranks


class Likelihood(Objective):
    """Texts are learned whole, of conversations the answers."""

    def loss(self, model: nn.Module, batch: MicroBatch, figures: Figures) -> torch.Tensor:
        """Summed over the targets that count."""
        return summed_loss(model, batch)

    def saved_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state(self, folder: Path, digest: object, ranks: Ranks) -> None:
        """Nothing is to be loaded."""
