"""The data as a training takes it: samples of a fixed length, by number, mapped from disk.

Of a stream of texts sample i is tokens[i*S : i*S + S + 1]: S inputs and, shifted by one, S targets. Of packed
conversations it is row i; of pairs of answers rows 2i, the one that is chosen, and 2i + 1, the one that is rejected.
The tail is kept for evaluation, so of a stream at most one document lies on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtimes.train.data.encode import BEGINS, LEARNED, Encoded
from runtimes.train.errors import BadData


@dataclass(frozen=True)
class Sequences:
    """b sequences: a sample each, or several in a row (`Corpus.rows_per_sample`)."""

    tokens: NDArray[np.int64]  # (b, S + 1)
    weights: NDArray[np.float32]  # (b, S): 1 for a target that counts, else 0
    positions: NDArray[np.int64] | None  # (b, S) of each input in its conversation; None: in its sample, from 0
    samples: NDArray[np.int64]  # (b / rows,): which samples of the corpus they are; -1: none
    rows_per_sample: int = 1

    def part(self, start: int, size: int) -> Sequences:
        """The samples from `start` on, at most `size`."""
        each = self.rows_per_sample
        rows = slice(start * each, (start + size) * each)
        positions = None if self.positions is None else self.positions[rows]
        return Sequences(self.tokens[rows], self.weights[rows], positions, self.samples[start : start + size], each)


@dataclass(frozen=True)
class Corpus:
    """A tokenised corpus. `digest` names its exact tokens and cut: nodes or attempts that differ are refused."""

    tokens: NDArray[np.int32]  # shape (T,), mapped from disk
    sequence_length: int
    train_samples: int
    eval_samples: int
    digest: str
    marks: NDArray[np.uint8] | None = None  # shape (T,), of packed conversations
    packs: bool = False
    rows_per_sample: int = 1  # 2: a sample is a pair of answers, which count as one target

    def train_sequences(self, ids: NDArray[np.uint64]) -> Sequences:
        """The training samples of these ids."""
        return self._sequences(ids.astype(np.int64))

    def eval_sequences(self, ids: NDArray[np.int64]) -> Sequences:
        """The evaluation samples of these ids."""
        return self._sequences(ids + self.train_samples)

    def sequences(self, ids: NDArray[np.int64]) -> Sequences:
        """The samples of these numbers: those for training, then those for evaluation."""
        return self._sequences(ids)

    def train_targets(self, ids: NDArray[np.uint64]) -> int:
        """How many targets count in the training samples of these ids."""
        return self._targets(ids.astype(np.int64))

    def eval_targets(self, ids: NDArray[np.int64]) -> int:
        """How many targets count in the evaluation samples of these ids."""
        return self._targets(ids + self.train_samples)

    def _places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        stride = self.sequence_length + (self.marks is not None)
        rows = (ids[:, None] * self.rows_per_sample + np.arange(self.rows_per_sample)).ravel()
        places: NDArray[np.int64] = (rows * stride)[:, None] + np.arange(self.sequence_length + 1)[None, :]
        return places

    def _targets(self, ids: NDArray[np.int64]) -> int:
        if self.rows_per_sample > 1:
            return len(ids)
        if self.marks is None:
            return len(ids) * self.sequence_length
        return int(np.count_nonzero(self.marks[self._places(ids)[:, 1:]] & LEARNED))

    def _sequences(self, ids: NDArray[np.int64]) -> Sequences:
        places = self._places(ids)
        tokens = self.tokens[places].astype(np.int64)
        if self.marks is None:
            return Sequences(tokens, np.ones((len(ids), self.sequence_length), dtype=np.float32), None, ids)
        marks = self.marks[places]
        weights = (marks[:, 1:] & LEARNED).astype(np.float32)
        if not self.packs:
            return Sequences(tokens, weights, None, ids, self.rows_per_sample)
        at = np.arange(self.sequence_length)
        begins = np.maximum.accumulate(np.where(marks[:, :-1] & BEGINS, at, 0), axis=1)
        return Sequences(tokens, weights, at - begins, ids)


def open_corpus(
    path: Path, marks_path: Path, encoded: Encoded, *, sequence_length: int, eval_fraction: float, packs: bool
) -> Corpus:
    """The corpus in encoded files; raises BadData where it is too short to train and evaluate on."""
    empty = path.stat().st_size == 0
    tokens: NDArray[np.int32] = np.zeros(0, np.int32) if empty else np.memmap(path, dtype="<i4", mode="r")
    samples = len(tokens) // (sequence_length + 1) if encoded.is_rows else (len(tokens) - 1) // sequence_length
    samples //= encoded.rows_per_sample
    eval_samples = max(1, round(samples * eval_fraction))
    if samples < 2 and encoded.rows_per_sample > 1:
        raise BadData(
            f"the data has {samples} pairs of answers within sequences of {sequence_length} tokens, training and "
            f"evaluation need 2: give more of them or a longer sequence_length ({encoded.left_out} left out, and "
            f"{encoded.passed_over} answers that the chat template writes in another way)"
        )
    if samples < 2 and encoded.is_rows:
        raise BadData(
            f"the conversations fill {samples} sequences of {sequence_length}, training and evaluation need 2: give "
            f"more of them or a shorter sequence_length ({encoded.left_out} showed no answer within it)"
        )
    if samples < 2:
        raise BadData(
            f"the data has {len(tokens)} tokens, too few for 2 sequences of {sequence_length}: "
            "give more text or a shorter sequence_length"
        )
    return Corpus(
        tokens,
        sequence_length,
        samples - eval_samples,
        eval_samples,
        f"{encoded.digest}:{samples}:{eval_samples}",
        np.memmap(marks_path, dtype=np.uint8, mode="r") if encoded.is_rows else None,
        packs,
        encoded.rows_per_sample,
    )
