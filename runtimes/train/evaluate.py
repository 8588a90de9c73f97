"""Losses: of a part of a batch while training, and of the held-out sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from runtimes.train.data.corpus import Corpus, Sequences
from runtimes.train.data.order import largest_part, rank_part
from runtimes.train.loss import MicroBatch, summed_loss
from runtimes.train.parallel import Ranks, sum_over_ranks

EVALUATED_SEQUENCES_MAX = 64


def micro_batches(sequences: Sequences, *, passes: int, device: torch.device) -> Iterator[MicroBatch]:
    """Exactly `passes` micro-batches, at most one sequence apart; missing ones are a sequence of weight 0.

    Every rank makes the same number of passes, because each pass gathers the shards of all.
    """
    count, length = sequences.tokens.shape
    for number in range(passes):
        within = rank_part(count, number, passes)
        part = sequences.part(within.start, within.stop - within.start)
        if not len(part.tokens):
            positions = None if sequences.positions is None else np.arange(length - 1)[None]
            part = Sequences(np.zeros((1, length), np.int64), np.zeros((1, length - 1), np.float32), positions)
        yield MicroBatch(
            torch.from_numpy(part.tokens).to(device),
            torch.from_numpy(part.weights).to(device),
            None if part.positions is None else torch.from_numpy(part.positions).to(device),
        )


def evaluate(model: nn.Module, corpus: Corpus, ranks: Ranks, *, micro_batch_size: int | None) -> float:
    """Mean loss a token over the first evaluation sequences; the same on any number of ranks."""
    count = min(corpus.eval_samples, EVALUATED_SEQUENCES_MAX)
    mine = np.arange(count, dtype=np.int64)[rank_part(count, ranks.rank, ranks.world_size)]
    most = largest_part(count, ranks.world_size)
    size = min(micro_batch_size or most, most)
    total = torch.zeros((), dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        batches = micro_batches(corpus.eval_sequences(mine), passes=-(-most // size), device=ranks.device)
        for batch in batches:
            total += summed_loss(model, batch).double().cpu()
    model.train()
    summed = sum_over_ranks(ranks, [float(total)])[0]
    return summed / max(1, corpus.eval_targets(np.arange(count, dtype=np.int64)))
