"""The data: documents -> one stream of tokens on disk -> sequences of a fixed length, by number.

Sample i is tokens[i*S : i*S + S + 1]: S inputs and, shifted by one, S targets. The documents are put in an order that
the seed decides, and the tail of the stream is kept for evaluation, so at most one document lies on both sides.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from runtimes.train.errors import BadData

BUILT_IN = "python-docs"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
JSONL_SUFFIXES = (".jsonl", ".ndjson")
JSONL_TEXT_KEY = "text"
DATA_BYTES_MAX = 8 << 30
DOCUMENTS_PER_BATCH = 256  # encoded at once


@dataclass(frozen=True)
class Corpus:
    """A tokenised corpus. `digest` names its exact tokens and cut: nodes or attempts that differ are refused."""

    tokens: NDArray[np.int32]  # shape (T,), mapped from disk
    sequence_length: int
    train_samples: int
    eval_samples: int
    digest: str

    def train_sequences(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The training samples of these ids, shape (len(ids), S + 1)."""
        return self._sequences(ids.astype(np.int64), 0)

    def eval_sequences(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The evaluation samples of these ids, shape (len(ids), S + 1)."""
        return self._sequences(ids, self.train_samples)

    def _sequences(self, ids: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        starts = (ids + first) * self.sequence_length
        offsets = np.arange(self.sequence_length + 1)
        sequences: NDArray[np.int64] = self.tokens[starts[:, None] + offsets[None, :]].astype(np.int64)
        return sequences


def read_documents(names: tuple[str, ...], input_dir: Path, seed: int) -> list[str]:
    """The documents of the data, in an order decided by `seed`; raises BadData that names the wrong file."""
    documents = [text for name in names for text in _documents_of(name, input_dir) if text.strip()]
    if not documents:
        raise BadData(f"the data holds no text: {', '.join(names)}")
    random.Random(seed).shuffle(documents)
    return documents


def encode_documents(
    documents: list[str], tokenizer: Tokenizer, end_id: int, path: Path, *, tell: Callable[[str], None]
) -> str:
    """Write the tokens of all documents, each followed by `end_id`, to `path` as raw 32-bit integers; their SHA-256.

    `tell` hears how far it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for first in range(0, len(documents), DOCUMENTS_PER_BATCH):
            tell(f"{first:,} of {len(documents):,} documents, {out.tell() // 4:,} tokens")
            for encoding in tokenizer.encode_batch(documents[first : first + DOCUMENTS_PER_BATCH]):
                tokens = np.asarray([*encoding.ids, end_id], dtype="<i4").tobytes()
                digest.update(tokens)
                out.write(tokens)
    return digest.hexdigest()


def open_corpus(path: Path, digest: str, *, sequence_length: int, eval_fraction: float) -> Corpus:
    """The corpus in an encoded file; raises BadData where it is too short to train and evaluate on."""
    tokens: NDArray[np.int32] = np.memmap(path, dtype="<i4", mode="r")
    samples = (len(tokens) - 1) // sequence_length
    eval_samples = max(1, round(samples * eval_fraction))
    if samples < 2:
        raise BadData(
            f"the data has {len(tokens)} tokens, too few for 2 sequences of {sequence_length}: "
            "give more text or a shorter sequence_length"
        )
    return Corpus(tokens, sequence_length, samples - eval_samples, eval_samples, f"{digest}:{samples}:{eval_samples}")


def _documents_of(name: str, input_dir: Path) -> Iterator[str]:
    if name == BUILT_IN:
        from pydoc_data.topics import topics

        yield from (str(topics[key]) for key in sorted(topics))
        return
    root = input_dir.resolve()
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise BadData(f"data {name!r} must be a path below the job's files")
    paths = sorted(path for path in root.glob(name) if path.is_file())
    if not paths:
        raise BadData(f"data {name!r} is not among the job's files")
    if sum(path.stat().st_size for path in paths) > DATA_BYTES_MAX:
        raise BadData(f"data {name!r} is larger than {DATA_BYTES_MAX >> 30} GiB")
    for path in paths:
        if not path.resolve().is_relative_to(root):
            raise BadData(f"data {name!r} leads out of the job's files")
        yield from _documents_in(path)


def _documents_in(path: Path) -> Iterator[str]:
    try:
        if path.suffix in TEXT_SUFFIXES:
            yield path.read_text(encoding="utf-8")
        elif path.suffix in JSONL_SUFFIXES:
            with path.open(encoding="utf-8") as lines:
                yield from (
                    _document_of_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()
                )
        else:
            known = ", ".join(TEXT_SUFFIXES + JSONL_SUFFIXES)
            raise BadData(f"{path.name} is of no known kind, expected one of {known}")
    except UnicodeDecodeError as error:
        raise BadData(f"{path.name} is not UTF-8 text (byte {error.start})") from error


def _document_of_line(path: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)[JSONL_TEXT_KEY]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise BadData(f'{path.name} line {number} is not an object with a "{JSONL_TEXT_KEY}"')
    return text
