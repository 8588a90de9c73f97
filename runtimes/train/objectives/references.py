"""What the model said of each pair's answers before it was trained: computed once, by all ranks, and kept.

They are written to a file as they come, which every rank then reads: of ten million pairs it has 80 MB. Checkpoints
keep them, since other ranks or another device would find others, by rounding.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from runtimes.train.checkpoint_reader import load_state
from runtimes.train.data.corpus import Corpus
from runtimes.train.data.order import largest_part, rank_part
from runtimes.train.errors import BadCheckpoint, BadData
from runtimes.train.loss import MicroBatch, summed_loss
from runtimes.train.objectives.batches import micro_batches
from runtimes.train.parallel import Progress, Ranks, wait_for_results

References = torch.Tensor  # (P, 2) float32: summed cross-entropy of each pair's chosen and rejected answer
REFERENCES_FILE = "cache/references.float32"  # below the working directory
PASSES_AT_ONCE = 8  # between two times that the ranks exchange what they found


def sequence_losses(model: nn.Module, batch: MicroBatch) -> torch.Tensor:
    """Each sequence's cross-entropy over the targets that count, (b,), without dropout and without a gradient."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return summed_loss(model, batch, lambda losses: losses)
    finally:
        model.train(was_training)


def compute_references(model: nn.Module, corpus: Corpus, ranks: Ranks, *, at_once: int, work_dir: Path) -> References:
    """Those of all pairs, by the model as it is, `at_once` pairs in a pass of a rank. All ranks call it.

    Raises BadData where one is not finite.
    """
    path, pairs = work_dir / REFERENCES_FILE, corpus.train_samples + corpus.eval_samples
    each_round = at_once * PASSES_AT_ONCE * ranks.world_size

    def compute(progress: Progress) -> None:
        if ranks.device.type == "cuda":
            torch.cuda.set_device(ranks.device)  # of this thread
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.done, progress.total, progress.unit = 0, pairs, "pairs"
        with path.open("wb") if ranks.is_node_leader else Path("/dev/null").open("wb") as file:
            for first in range(0, pairs, each_round):
                ids = np.arange(first, min(first + each_round, pairs), dtype=np.int64)
                found = _of_pairs(model, corpus, ranks, ids, at_once=at_once)
                if not np.isfinite(found).all():
                    raise BadData("the model finds an answer of the data impossible: its weights or the data are wrong")
                file.write(found.astype("<f4").tobytes())
                progress.done = first + len(ids)

    wait_for_results(ranks, compute, "references")
    return torch.from_numpy(np.fromfile(path, dtype="<f4").reshape(pairs, 2))


def empty_references(corpus: Corpus) -> References:
    """Room for those of all pairs, which a checkpoint will fill."""
    return torch.zeros(corpus.train_samples + corpus.eval_samples, 2)


def load_references(into: References, folder: Path, digest: object, ranks: Ranks) -> None:
    """Those of a checkpoint, whose trainer wrote their `digest`. All ranks call it. Raises BadCheckpoint."""
    load_state({"references": into}, folder, ranks.checkpoint)
    if digest_of(into) != digest or not bool(torch.isfinite(into).all()):
        raise BadCheckpoint(f"checkpoint {folder.name} has other references than its training began with")


def digest_of(references: References) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(np.ascontiguousarray(references.numpy(), dtype="<f4").tobytes()).hexdigest()


def _of_pairs(
    model: nn.Module, corpus: Corpus, ranks: Ranks, ids: np.typing.NDArray[np.int64], *, at_once: int
) -> np.typing.NDArray[np.float32]:
    """Those of these pairs, (n, 2), the same on every rank: each computes its part, in equally many passes."""
    mine = ids[rank_part(len(ids), ranks.rank, ranks.world_size)]
    passes = -(-largest_part(len(ids), ranks.world_size) // at_once)
    found = []
    for batch in micro_batches(corpus.sequences(mine), passes=passes, device=ranks.device):
        losses = sequence_losses(model, batch).float().cpu().view(-1, 2).numpy()
        if batch.samples is not None:
            found.append(losses[batch.samples >= 0])
    parts: list[np.typing.NDArray[np.float32]] = [np.empty((0, 2), np.float32)] * ranks.world_size
    # Not by the group that the ranks wait in meanwhile; nothing is saved yet.
    dist.all_gather_object(parts, np.concatenate(found), group=ranks.checkpoint)
    return np.concatenate(parts)
