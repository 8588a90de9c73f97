"""Losses: of a part of a batch while training, and of the held-out sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from runtimes.train.data.corpus import Corpus, Sequences
from runtimes.train.data.order import largest_part, rank_part
from runtimes.train.loss import MicroBatch
from runtimes.train.objectives.base import Figures, Objective
from runtimes.train.parallel import Ranks, sum_over_ranks

EVALUATED_SEQUENCES_MAX = 64
NONE = np.array([-1], dtype=np.int64)  # the number of a sample that stands for none


def micro_batches(sequences: Sequences, *, passes: int, device: torch.device) -> Iterator[MicroBatch]:
    """Exactly `passes` micro-batches, at most one sample apart; missing ones are a sample of weight 0.

    Every rank makes the same number of passes, because each pass gathers the shards of all.
    """
    count, length, rows = len(sequences.samples), sequences.tokens.shape[1], sequences.rows_per_sample
    for number in range(passes):
        within = rank_part(count, number, passes)
        part = sequences.part(within.start, within.stop - within.start)
        if not len(part.tokens):
            positions = None if sequences.positions is None else np.tile(np.arange(length - 1), (rows, 1))
            part = Sequences(
                np.zeros((rows, length), np.int64), np.zeros((rows, length - 1), np.float32), positions, NONE, rows
            )
        yield MicroBatch(
            torch.from_numpy(part.tokens).to(device),
            torch.from_numpy(part.weights).to(device),
            None if part.positions is None else torch.from_numpy(part.positions).to(device),
            part.samples,
        )


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
