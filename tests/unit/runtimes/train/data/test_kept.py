"""Tokens of the node's cache are used where they are what their digest says, whatever else their manifest claims."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes.node_cache import NodeCache
from runtimes.train.data import kept
from runtimes.train.data.encode import Encoded
from runtimes.train.data.kept import KIND, MARKS_NAME, TOKENS_NAME, Kept, find_kept, keep

KEY = "1" * 64
VOCABULARY, LENGTH, ROWS = 50, 8, 6

Lie = Callable[[Encoded], Encoded]


def leave(folder: Path, *, is_rows: bool, lie: Lie = lambda encoded: encoded, highest: int = VOCABULARY - 1) -> Path:
    """A node's cache with an entry as a training writes it, digest by digest, but for the lie."""
    cache = NodeCache(folder, folder.parent / "work")
    made = cache.begin(KIND, KEY)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, LENGTH + 1)).astype("<i4")
    marks = np.ones((ROWS, LENGTH + 1), dtype=np.uint8)
    ids[-1, -1] = highest
    (made / TOKENS_NAME).write_bytes(ids.tobytes())
    digest = hashlib.sha256(ids.tobytes())
    if is_rows:
        (made / MARKS_NAME).write_bytes(marks.tobytes())
        digest = hashlib.sha256(b"".join(row.tobytes() + mark.tobytes() for row, mark in zip(ids, marks, strict=True)))
    keep(cache, made, lie(Encoded(digest.hexdigest(), is_rows)), None, seconds=90.0)
    made.parent.parent.rename(folder)
    return folder


def find(folder: Path, **changes: Any) -> Kept | None:
    wanted = {"vocabulary": VOCABULARY, "sequence_length": LENGTH, "rows_per_sample": 1, **changes}
    return find_kept(NodeCache(folder, folder.parent / "later"), KEY, **wanted)


@pytest.fixture(params=[1, 20, 1 << 20], autouse=True)
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "CHUNK_TOKENS", request.param)
    (tmp_path / "later").mkdir()


@pytest.mark.parametrize("is_rows", [False, True])
def test_right_tokens_are_found(tmp_path: Path, is_rows: bool) -> None:
    found = find(leave(tmp_path / "cache", is_rows=is_rows))
    assert found is not None
    assert found.encoded.is_rows is is_rows


@pytest.mark.parametrize("is_rows", [False, True])
@pytest.mark.parametrize(
    "lie",
    [
        lambda encoded: replace(encoded, digest="0" * 64),
        lambda encoded: replace(encoded, rows_per_sample=0),
        lambda encoded: replace(encoded, rows_per_sample=2),
        lambda encoded: replace(encoded, cut=-1),
        lambda encoded: replace(encoded, left_out=1 << 70),
        lambda encoded: replace(encoded, filled=float("nan")),
        lambda encoded: replace(encoded, filled=1),
    ],
)
def test_a_manifest_that_lies_is_not_believed(tmp_path: Path, is_rows: bool, lie: Lie) -> None:
    assert find(leave(tmp_path / "cache", is_rows=is_rows, lie=lie)) is None


@pytest.mark.parametrize("is_rows", [False, True])
@pytest.mark.parametrize("highest", [VOCABULARY, -1])
def test_ids_out_of_the_vocabulary_are_not_taken(tmp_path: Path, is_rows: bool, highest: int) -> None:
    assert find(leave(tmp_path / "cache", is_rows=is_rows, highest=highest)) is None


def test_rows_of_another_length_are_not_taken(tmp_path: Path) -> None:
    folder = leave(tmp_path / "cache", is_rows=True)
    assert find(folder, sequence_length=LENGTH - 1) is None
    assert find(folder, sequence_length=2 * LENGTH + 1) is None, "the size fits, the digest does not"
    assert find(folder, rows_per_sample=2) is None
    assert find(folder) is not None
