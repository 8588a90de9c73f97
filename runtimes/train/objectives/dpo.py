"""Direct preference optimisation (Rafailov et al. 2023, https://arxiv.org/abs/2305.18290, equation 7).

For a prompt x with the answers w, which is preferred, and l, which is not, the loss of a pair is

    -log sigmoid(r(w) - r(l)),   r(y) = beta (log p(y | x) - log p0(y | x))

p is the model that is trained and p0 the one that it was at first, its reference; r(y) is called an answer's reward.
log p(y | x) is summed over the answer's tokens. With adapters the reference is the base, computed beside the model in
every step; without them its numbers are computed once, before the first step (references.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from runtimes.train.adapters import adapters_off
from runtimes.train.config import Dpo
from runtimes.train.loss import MicroBatch, summed_loss
from runtimes.train.objectives.base import Figures, Objective
from runtimes.train.objectives.references import References, digest_of, load_references, sequence_losses
from runtimes.train.parallel import Ranks


class DpoObjective(Objective):
    """Sigmoid DPO over pairs: row 2i of a micro-batch is the answer that is chosen, row 2i + 1 the other."""

    def __init__(self, dpo: Dpo, references: References | None) -> None:
        """`references`: of every pair of the data, by its number, (P, 2); None: the model without its adapters."""
        self._beta, self._references = dpo.beta, references
        if references is not None:
            self.digest = digest_of(references)

    def loss(self, model: nn.Module, batch: MicroBatch, figures: Figures) -> torch.Tensor:
        """Summed over the pairs."""
        if batch.samples is None:
            raise ValueError("the micro-batch does not say which pairs it has")
        counts = torch.from_numpy((batch.samples >= 0).astype("float32")).to(batch.sequences.device)  # (p,)
        reference = self._reference(model, batch)  # (p, 2)

        def of_sequences(losses: torch.Tensor) -> torch.Tensor:
            rewards = self._beta * (reference - losses.view(-1, 2))  # (p, 2): losses are negative log-likelihoods
            margins = rewards[:, 0] - rewards[:, 1]
            with torch.no_grad():
                chosen, rejected = (rewards * counts[:, None]).sum(0)
                figures.add(
                    counts.sum(),
                    reward_chosen=chosen,
                    reward_rejected=rejected,
                    reward_margin=chosen - rejected,
                    reward_accuracy=((margins > 0) * counts).sum(),
                )
            return -(functional.logsigmoid(margins) * counts).sum()

        return summed_loss(model, batch, of_sequences)

    def saved_state(self) -> dict[str, Any]:
        """The references, where there are some: computed anew by other ranks they would differ by rounding."""
        return {} if self._references is None else {"references": self._references}

    def load_state(self, folder: Path, digest: object, ranks: Ranks) -> None:
        """Raises BadCheckpoint where the references are not those that the training began with."""
        if self._references is not None:
            load_references(self._references, folder, digest, ranks)
            self.digest = digest_of(self._references)

    def _reference(self, model: nn.Module, batch: MicroBatch) -> torch.Tensor:
        if self._references is None:
            with adapters_off(model):
                return sequence_losses(model, batch).view(-1, 2)
        samples = torch.from_numpy(batch.samples).clamp(min=0)
        return self._references[samples].to(batch.sequences.device)
