"""The loss on held-out data."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from runtimes.train.data.corpus import Corpus
from runtimes.train.data.order import largest_part, rank_part
from runtimes.train.objectives.base import Figures, Objective
from runtimes.train.objectives.batches import micro_batches
from runtimes.train.parallel import Ranks, sum_over_ranks

EVALUATED_SEQUENCES_MAX = 64


def evaluate(
    model: nn.Module, objective: Objective, corpus: Corpus, ranks: Ranks, *, micro_batch_size: int | None
) -> tuple[float, dict[str, float]]:
    """Mean loss a target over the first evaluation samples, and the objective's figures of them.

    The same on any number of ranks.
    """
    figures = Figures()
    count = min(corpus.eval_samples, EVALUATED_SEQUENCES_MAX)
    mine = np.arange(count, dtype=np.int64)[rank_part(count, ranks.rank, ranks.world_size)]
    most = largest_part(count, ranks.world_size)
    size = min(micro_batch_size or most, most)
    total = torch.zeros((), dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        batches = micro_batches(corpus.eval_sequences(mine), passes=-(-most // size), device=ranks.device)
        for batch in batches:
            total += objective.loss(model, batch, figures).double().cpu()
    model.train()
    summed = sum_over_ranks(ranks, [float(total)])[0]
    loss = summed / max(1, corpus.eval_targets(np.arange(count, dtype=np.int64)))
    return loss, figures.means(ranks)
