"""Records as tokens on disk, whatever their number: one stream of texts, or rows of packed conversations.

tokens   32-bit integers: one text after the other, each followed by the end's id; or rows of sequence_length + 1
marks    of rows, one byte a token: LEARNED, a target that counts; BEGINS, the first token of a conversation
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from runtimes.train.data.conversations import Conversations, Example, is_text, text_of
from runtimes.train.data.documents import Record, Run
from runtimes.train.data.tokenizer import first_ids
from runtimes.train.errors import BadData

LEARNED: Final = 1
BEGINS: Final = 2
BATCH_BYTES: Final = 4 << 20  # of text, encoded at once
BATCH_COUNT: Final = 256
EMPTY_TOKENS_MAX: Final = 1 << 30  # of rows that are nearly empty
FILLED_MIN: Final = 0.05
OPEN_ROWS: Final = 64  # that may still take a conversation

T = TypeVar("T")


@dataclass(frozen=True)
class Encoded:
    """What was written. `digest` names the exact tokens and marks."""

    digest: str
    is_rows: bool
    cut: int = 0  # conversations that were longer than a row
    left_out: int = 0  # that had no answer to learn, or none within a row
    passed_over: int = 0  # answers that the template writes in another way
    filled: float = 1.0  # share of the rows' tokens that are a conversation's
    rows_per_sample: int = 1


class EncodingProgress:
    """Says how far the encoding is, in bytes of the runs: whole ones, and of the present one about what was read."""

    def __init__(self, runs: list[Run], tell: Callable[[int, int, int], None]) -> None:
        """`tell`: hears bytes done, bytes in all, and tokens written."""
        self._total, self._tell = sum(run.size for run in runs), tell
        self._run: Run | None = None
        self._whole = self._within = self._done = self._tokens = 0

    def follow(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, counted."""
        for record in records:
            if record.run is not self._run:
                self._whole += self._run.size if self._run else 0
                self._run, self._within = record.run, 0
            self._within += len(text_of(record))
            yield record

    def count(self, tokens: int) -> None:
        """As many were written since the last call."""
        self._tokens += tokens
        self._done = max(self._done, self._whole + min(self._within, self._run.size if self._run else 0))
        self._tell(self._done, self._total, self._tokens)


def encode_texts(
    records: Iterable[Record], tokenizer: Tokenizer, end_id: int, path: Path, progress: EncodingProgress
) -> Encoded:
    """Write the tokens of all texts to `path`; raises BadData for a record that is none."""
    digest = hashlib.sha256()
    progress.count(0)
    first = first_ids(tokenizer)  # of a long text before its first piece alone; behind it is our end
    with path.open("wb") as out:
        for batch in batches(_texts(progress.follow(records)), lambda each: len(each[1])):
            texts = [text for _, text in batch]
            found = encode_together(lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False), texts)
            for (record, _), encoding in zip(batch, found, strict=True):
                around = first if record.is_begin else [], [end_id] if record.is_end else []
                ids = np.asarray([*around[0], *encoding.ids, *around[1]], dtype="<i4").tobytes()
                digest.update(ids)
                out.write(ids)
            progress.count(sum(len(encoding.ids) for encoding in found))
    return Encoded(digest.hexdigest(), is_rows=False)


def encode_conversations(
    records: Iterable[Record],
    tokenizer: Tokenizer,
    conversations: Conversations,
    *,
    end_id: int,
    path: Path,
    marks_path: Path,
    sequence_length: int,
    packs: bool,
    progress: EncodingProgress,
) -> Encoded:
    """Write rows of conversations to `path` and what counts in them to `marks_path`.

    `packs`: a row takes as many conversations as fit, else one. A longer one is cut at its end. Raises BadData.
    """
    length = sequence_length + 1
    progress.count(0)
    with path.open("wb") as tokens, marks_path.open("wb") as marks:
        rows = Rows(length, end_id, lambda ids, each: (tokens.write(ids), marks.write(each)))
        for batch in batches(progress.follow(records), lambda record: len(text_of(record))):
            examples = [_write(conversations, record) for record in batch]
            texts = [each.text for each in examples]
            found = encode_together(lambda texts: tokenizer.encode_batch(texts, add_special_tokens=False), texts)
            for example, encoding in zip(examples, found, strict=True):
                rows.add(encoding, example, packs=packs)
            progress.count(sum(len(encoding.ids) for encoding in found))
        return rows.close()


def _texts(records: Iterable[Record]) -> Iterator[tuple[Record, str]]:
    for record in records:
        text = text_of(record)
        if not is_text(record):
            raise BadData(f"{record} is a conversation, others are texts: train on one kind")
        if text.strip():
            yield record, text


def encode_together(encode: Callable[[list[str]], list[Encoding]], texts: list[str]) -> list[Encoding]:
    """The texts by `encode`; raises BadData for what the tokenizer refuses."""
    try:
        return encode(texts)
    except Exception as error:  # its library raises no narrower one
        raise BadData(f"the tokenizer cannot encode the data: {error!s:.200}") from error


def _write(conversations: Conversations, record: Record) -> Example:
    if is_text(record):
        raise BadData(f"{record} is a text, others are conversations: train on one kind")
    return conversations.write(record)


def learned_tokens(encoding: Encoding, example: Example) -> NDArray[np.bool_]:
    """Which of an example's tokens are learned: those that have a character of a learned part, as a word has the space
    before it. Never the first: nothing of its conversation comes before it.
    """
    starts, ends = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2).T
    learned = np.zeros(len(starts), dtype=np.bool_)
    for first, end in example.learned:
        learned |= (ends > first) & (starts < end)
    learned[:1] = False
    return learned


class Rows:
    """Rows that are filled, those of the fullest first, and written when nothing more is likely to fit."""

    def __init__(self, length: int, end_id: int, write: Callable[[bytes, bytes], object]) -> None:
        self._length, self._end_id, self._write = length, end_id, write
        self._open: list[_Row] = []
        self._digest = hashlib.sha256()
        self._used = self._rows = self._cut = self._left_out = self._passed_over = 0

    def add(self, encoding: Encoding, example: Example, *, packs: bool) -> None:
        """A conversation, to the fullest row that has room, or to one of its own."""
        self._passed_over += example.passed_over
        ids, marks = self._cut_to_row(encoding, example)
        if not marks.any():
            self._left_out += 1
            return
        fitting = [row for row in self._open if row.used + len(ids) <= self._length] if packs else []
        row = max(fitting, key=lambda each: each.used) if fitting else self._new_row()
        row.fill(ids, marks)
        if not packs or row.used >= self._length - 1:
            self._finish(row)

    def add_together(self, encodings: list[Encoding], examples: list[Example]) -> None:
        """Each to a row of its own, one behind the other; none of them where one shows nothing to learn in its row."""
        self._passed_over += sum(example.passed_over for example in examples)
        parts = [self._cut_to_row(*each) for each in zip(encodings, examples, strict=True)]
        if not all(marks.any() for _, marks in parts):
            self._left_out += 1
            return
        for ids, marks in parts:
            row = self._new_row()
            row.fill(ids, marks)
            self._finish(row)

    def _cut_to_row(self, encoding: Encoding, example: Example) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        ids = np.asarray(encoding.ids, dtype="<i4")
        marks = learned_tokens(encoding, example).astype(np.uint8) * np.uint8(LEARNED)
        self._cut += len(ids) > self._length
        return ids[: self._length], marks[: self._length]

    def close(self) -> Encoded:
        """Write the rows that are still open; what was written of all."""
        for row in list(self._open):
            self._finish(row)
        filled = self._used / max(1, self._rows * self._length)
        return Encoded(self._digest.hexdigest(), True, self._cut, self._left_out, self._passed_over, filled)

    def _new_row(self) -> _Row:
        if len(self._open) >= OPEN_ROWS:
            self._finish(max(self._open, key=lambda each: each.used))
        row = _Row(np.full(self._length, self._end_id, dtype="<i4"), np.zeros(self._length, dtype=np.uint8))
        self._open.append(row)
        return row

    def _finish(self, row: _Row) -> None:
        self._open.remove(row)
        if row.used < self._length:
            row.marks[row.used] |= BEGINS  # what fills it up sees nothing of the last conversation
        ids, marks = row.ids.tobytes(), row.marks.tobytes()
        self._digest.update(ids + marks)
        self._write(ids, marks)
        self._used += row.used
        self._rows += 1
        size = self._rows * self._length
        if size > EMPTY_TOKENS_MAX and self._used < size * FILLED_MIN:
            raise BadData(
                f"the data fill {self._used / size:.2%} of sequences of {self._length - 1}: "
                "choose a shorter sequence_length, or packing where the data are conversations"
            )


@dataclass(eq=False)
class _Row:
    ids: NDArray[np.int32]
    marks: NDArray[np.uint8]
    used: int = 0

    def fill(self, ids: NDArray[np.int32], marks: NDArray[np.uint8]) -> None:
        """Put a conversation behind those that it has."""
        part = slice(self.used, self.used + len(ids))
        self.ids[part], self.marks[part] = ids, marks
        self.marks[self.used] |= BEGINS
        self.used += len(ids)


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of items that are at most BATCH_COUNT, and BATCH_BYTES together unless it is one alone."""
    batch: list[T] = []
    used = 0
    for item in items:
        each = size(item)
        if batch and (len(batch) >= BATCH_COUNT or used + each > BATCH_BYTES):
            yield batch
            batch, used = [], 0
        batch.append(item)
        used += each
    if batch:
        yield batch
