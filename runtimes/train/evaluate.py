"""Losses: of a part of a batch while training, and of the held-out sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from runtimes.train.data.corpus import Corpus
from runtimes.train.data.order import largest_part, rank_part
from runtimes.train.loss import summed_loss
from runtimes.train.parallel import Ranks, sum_over_ranks

EVALUATED_SEQUENCES_MAX = 64


def micro_batches(
    sequences: NDArray[np.int64], *, passes: int, size: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Exactly `passes` pairs of (sequences (b, S + 1), weights (b,)); missing ones are a sequence of weight 0.

    Every rank makes the same number of passes, because each pass gathers the shards of all.
    """
    for number in range(passes):
        part = sequences[number * size : (number + 1) * size]
        weights = np.ones(len(part), dtype=np.float32)
        if not len(part):
            part, weights = np.zeros((1, sequences.shape[1]), dtype=np.int64), np.zeros(1, dtype=np.float32)
        yield torch.from_numpy(part).to(device), torch.from_numpy(weights).to(device)


def evaluate(model: nn.Module, corpus: Corpus, ranks: Ranks, *, micro_batch_size: int | None) -> float:
    """Mean loss a token over the first evaluation sequences; the same on any number of ranks."""
    count = min(corpus.eval_samples, EVALUATED_SEQUENCES_MAX)
    mine = np.arange(count, dtype=np.int64)[rank_part(count, ranks.rank, ranks.world_size)]
    most = largest_part(count, ranks.world_size)
    size = min(micro_batch_size or most, most)
    total = torch.zeros((), dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        batches = micro_batches(corpus.eval_sequences(mine), passes=-(-most // size), size=size, device=ranks.device)
        for sequences, weights in batches:
            total += summed_loss(model, sequences, weights).double().cpu()
    model.train()
    summed = sum_over_ranks(ranks, [float(total)])[0]
    return summed / (count * corpus.sequence_length)
