"""Tokens and trained tokenizers that are kept on the node: put into its cache, and taken from it again.

The digests of an entry's manifest are its maker's own. So tokens are read once before they are used: they have the
digest by which checkpoints know their data, or they are made anew; a wrong one would condemn a right checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from runtimes.contract import TOKENIZER_FILE, TOKENIZER_KIND, TOKENS_KIND
from runtimes.node_cache import Entry, NodeCache
from runtimes.train.data.encode import Encoded
from runtimes.train.data.tokenizer import is_trained, load_tokenizer

KIND: Final = TOKENS_KIND
TOKENS_NAME: Final = "tokens.int32"
MARKS_NAME: Final = "marks.uint8"
CHUNK_TOKENS: Final = 1 << 20  # read at once
FIELDS: Final = {field.name: type(field.default) for field in dataclasses.fields(Encoded)[2:]}


@dataclass(frozen=True)
class Kept:
    """Encoded data, with the folder that holds them and the chat template that leaves with the model."""

    encoded: Encoded
    template: str | None
    folder: Path
    found: str = ""  # when it was made, where that was before this training
    is_of_job: bool = False  # found where earlier attempts of this job leave it, not in the node's cache


def find_kept(
    cache: NodeCache, key: str, *, vocabulary: int, sequence_length: int, rows_per_sample: int
) -> Kept | None:
    """What an earlier training of the customer's made of the same data; None where nothing whole is there.

    `vocabulary`: ids are below it; `sequence_length`: of rows, which have one token more; `rows_per_sample`: as the
    configuration has it, 2 for pairs of answers.
    """
    entry = cache.find(KIND, key)
    kept = _kept(entry) if entry is not None else None
    if kept is None or kept.encoded.rows_per_sample != rows_per_sample:
        return None
    if rows_per_sample > 1 and not kept.encoded.is_rows:
        return None
    return kept if _digest(kept, vocabulary, sequence_length + 1) == kept.encoded.digest else None


def keep(cache: NodeCache, folder: Path, encoded: Encoded, template: str | None, *, seconds: float) -> None:
    """What is in the folder is complete; `seconds`: how long it took."""
    cache.complete(folder, seconds=seconds, encoded=dataclasses.asdict(encoded), template=template)


def find_tokenizer(cache: NodeCache, key: str, size: int) -> Tokenizer | None:
    """What an earlier training made of the same data; None where nothing is there that a training can have made."""
    entry = cache.find(TOKENIZER_KIND, key)
    try:
        found = load_tokenizer(entry.folder) if entry is not None else None
    except Exception:  # its library raises no narrower one
        return None
    return found if found is not None and is_trained(found, size) else None


def keep_tokenizer(cache: NodeCache, key: str, tokenizer: Tokenizer, *, seconds: float) -> None:
    """For later trainings on the same data; `seconds`: how long it took."""
    folder = cache.begin(TOKENIZER_KIND, key)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    cache.complete(folder, seconds=seconds)


def _kept(entry: Entry) -> Kept | None:
    encoded, template = entry.about.get("encoded"), entry.about.get("template")
    if not (isinstance(encoded, dict) and _is_encoded(encoded) and isinstance(template, str | None)):
        return None
    made = Encoded(**encoded)
    names = {TOKENS_NAME, *([MARKS_NAME] if made.is_rows else [])}
    if not all((entry.folder / name).is_file() for name in names):
        return None
    return Kept(made, template, entry.folder, found=entry.made, is_of_job=entry.is_of_job)


def _digest(kept: Kept, vocabulary: int, length: int) -> str | None:
    """As encode.py makes it; None for ids out of the vocabulary, and for sizes of no whole tokens or rows."""
    path, marks_path, is_rows = kept.folder / TOKENS_NAME, kept.folder / MARKS_NAME, kept.encoded.is_rows
    size, item = path.stat().st_size, np.dtype("<i4").itemsize
    if size % (item * (length if is_rows else 1)) or (is_rows and marks_path.stat().st_size * item != size):
        return None
    digest = hashlib.sha256()
    if size == 0:
        return digest.hexdigest()
    tokens: NDArray[np.int32] = np.memmap(path, dtype="<i4", mode="r")
    marks: NDArray[np.uint8] | None = np.memmap(marks_path, dtype=np.uint8, mode="r") if is_rows else None
    step = max(1, CHUNK_TOKENS // length) * length
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        if part.min() < 0 or part.max() >= vocabulary:
            return None
        if marks is None:
            digest.update(part.tobytes())
            continue
        rows = part.reshape(-1, length).view(np.uint8)  # (rows, 4 * length): each is followed by its marks
        digest.update(np.hstack([rows, marks[start : start + step].reshape(-1, length)]).tobytes())
    return digest.hexdigest()


def _is_encoded(about: dict[str, Any]) -> bool:
    is_named = isinstance(about.get("digest"), str) and isinstance(about.get("is_rows"), bool)
    return (
        is_named
        and about.keys() == {"digest", "is_rows", *FIELDS}
        and all(type(about[name]) is kind for name, kind in FIELDS.items())
        and all(0 <= about[name] < 2**63 for name, kind in FIELDS.items() if kind is int)
        and 0.0 <= about["filled"] <= 1.0
    )
