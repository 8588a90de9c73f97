"""Micro-batches: the parts of a batch that a rank computes one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from runtimes.train.data.corpus import Sequences
from runtimes.train.data.order import rank_part
from runtimes.train.loss import MicroBatch

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
