"""What is on disk is handed out once, whatever happens to the files."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.accounting import segments as segments_module
from jobs.gateway.accounting.segments import Segments


class Books:
    """The marketplace's side: takes rows in gaplessly, each number once."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []

    @property
    def seq(self) -> int:
        return len(self.rows)

    def take(self, segments: Segments, most: int = 3, rounds: int = 1000) -> None:
        for _ in range(rounds):
            lines = segments.read(most, 1 << 20)
            if not lines:
                return
            for line in lines:
                assert line.seq == self.seq + 1, "numbers have no gaps"
                self.rows.append(line.rest)
            segments.forget(self.seq)


def rows(*names: int) -> list[tuple[str, int, bytes]]:
    return [("key", name, b'"name":%d}' % name) for name in names]


def names(books: Books) -> list[int]:
    return [int(rest.split(b":")[1][:-1]) for rest in books.rows]


def test_rows_come_back_in_order_and_are_forgotten(tmp_path: Path) -> None:
    segments, books = Segments(tmp_path), Books()
    segments.write(rows(1, 2))
    assert segments.read(10, 1000) == [], "numbers are given when the marketplace has reported what it has"
    assert segments.settle(0) == 2
    segments.write(rows(3))
    books.take(segments)
    assert names(books) == [1, 2, 3]
    assert segments.read(10, 1000) == []


def test_a_restart_goes_on_where_the_marketplace_is(tmp_path: Path) -> None:
    first, books = Segments(tmp_path), Books()
    first.settle(0)
    first.write(rows(1, 2, 3, 4))
    books.take(first, most=2, rounds=1)
    first.close()
    second = Segments(tmp_path)
    second.write(rows(5))
    second.settle(books.seq)
    books.take(second)
    assert names(books) == [1, 2, 3, 4, 5]


def test_no_number_that_a_crash_cut_off_is_given_to_another_row(
    tmp_path: Path,
) -> None:
    first, books = Segments(tmp_path), Books()
    first.settle(0)
    first.write(rows(1, 2, 3, 4))
    books.take(first)
    first.close()
    (file,) = [path for path in tmp_path.glob("usage-*.log") if path.stat().st_size]
    file.write_bytes(b"")  # the marketplace has 1 to 4, the disk has nothing
    for name in (5, 6):
        again = Segments(tmp_path)
        again.write(rows(name))
        again.close()
    last = Segments(tmp_path)
    last.settle(books.seq)
    books.take(last)
    assert names(books) == [1, 2, 3, 4, 5, 6]


def test_files_that_were_taken_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "SEGMENT_BYTES", 200)
    segments, books = Segments(tmp_path), Books()
    segments.settle(0)
    for name in range(100):
        segments.write(rows(name))
    assert len(list(tmp_path.iterdir())) > 10
    books.take(segments)
    assert len(list(tmp_path.iterdir())) <= 2
    assert names(books) == list(range(100))


def test_a_failing_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments, books = Segments(tmp_path), Books()
    segments.settle(0)
    segments.write(rows(1))
    real = os.fdatasync

    def fail(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="No space"):
        segments.write(rows(2, 3))
    monkeypatch.setattr(os, "fdatasync", real)
    segments.write(rows(2, 3))
    books.take(segments)
    assert names(books) == [1, 2, 3]


def test_a_marketplace_that_was_restored_gets_what_is_still_here(tmp_path: Path) -> None:
    segments, books = Segments(tmp_path), Books()
    segments.settle(0)
    segments.write(rows(1, 2, 3))
    books.take(segments)
    del books.rows[1:]
    segments.settle(books.seq)
    books.take(segments)
    assert names(books) == [1, 2, 3]


@settings(max_examples=80, deadline=None)
@given(
    written=st.lists(st.lists(st.integers(0, 10**9), max_size=6), min_size=1, max_size=6),
    taken=st.integers(0, 12),
    harm=st.sampled_from(["cut", "flip", "garbage", "none"]),
    draw=st.randoms(use_true_random=False),
    segment_bytes=st.sampled_from([64, 200, 1 << 20]),
)
def test_whatever_harm_the_files_take_sound_rows_are_sent_once_and_without_gaps(
    written: list[list[int]], taken: int, harm: str, draw: random.Random, segment_bytes: int
) -> None:
    before, segments_module.SEGMENT_BYTES = segments_module.SEGMENT_BYTES, segment_bytes
    try:
        with tempfile.TemporaryDirectory() as folder:
            _one_harm(Path(folder), written, taken, harm, draw)
    finally:
        segments_module.SEGMENT_BYTES = before


def _one_harm(folder: Path, written: list[list[int]], taken: int, harm: str, draw: random.Random) -> None:
    books, serial = Books(), 0
    segments = Segments(folder)
    segments.settle(0)
    for batch in written:
        segments.write(rows(*range(serial, serial + len(batch))))
        serial += len(batch)
    books.take(segments, most=max(1, taken), rounds=1 if taken else 0)
    segments.close()
    taken_names = names(books)

    files = sorted(path for path in folder.glob("usage-*.log") if path.stat().st_size)
    lost: set[int] = set()
    if files and harm != "none":
        path = draw.choice(files)
        data = bytearray(path.read_bytes())
        place = draw.randrange(len(data))
        if harm == "cut":
            lost = _names_in(data[data.rfind(b"\n", 0, place) + 1 :])
            path.write_bytes(data[:place])
        elif harm == "flip":
            was = bytes(data)
            data[place] ^= 1 << draw.randrange(8)
            lost = _names_in(was) - _sound_names(bytes(data))
            assert len(lost) <= 2, "a bad byte costs its own line, or the two that its newline divided"
            path.write_bytes(data)
        else:
            path.write_bytes(data + draw.randbytes(40))

    again = Segments(folder)
    again.write(rows(serial, serial + 1))  # served before the marketplace answered
    again.settle(books.seq)
    again.write(rows(serial + 2))
    books.take(again)
    again.close()
    expected = sorted((set(range(serial + 3)) - lost) | set(taken_names))
    assert sorted(names(books)) == expected, "each once, and none missing but those that the harm hit"


def _names_in(data: bytes | bytearray) -> set[int]:
    found = (line.rsplit(b":", 1) for line in bytes(data).split(b"\n") if b":" in line)
    return {int(parts[1][:-1]) for parts in found if parts[1].endswith(b"}")}


def _sound_names(data: bytes) -> set[int]:
    lines = (segments_module._decode(line + b"\n", 0) for line in data.split(b"\n"))
    return {int(line.rest.split(b":")[1][:-1]) for line in lines if line is not None}
