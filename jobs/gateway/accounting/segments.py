"""Numbered rows on disk, in order, until they are forgotten; what a crash or a bad sector leaves is found again.

A folder of files, one line a row: `crc32 seq key cost rest`. A line whose checksum is wrong is passed over and the
next one found by its newline, so damage costs the rows it hit and no other. One thread at a time may call.

Numbers are given when a row is written, without gaps above `known`: the number up to which the marketplace has them
(`settle`). Until it has reported that after a start, numbers are provisional, far above all that were given before:
whatever a crash cut off the end, no number of it is given to another row. `settle` then writes what is left under its
final numbers, as a new generation of files that takes the place of the older ones by one rename.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from jobs.gateway.config import sync_folder

SEGMENT_BYTES = 4 * 1024 * 1024
LINE_BYTES_MAX = 8 * 1024
PROVISIONAL = 10**12  # further than numbers lost at an end can reach: rows that fit on a disk

NewRow = tuple[str, int, bytes]  # the key's id, its cost in micro-USD, the rest (opaque, without a newline)


@dataclass(frozen=True, slots=True)
class Line:
    """One row as it is stored."""

    seq: int
    key: str
    cost: int
    rest: bytes
    end: int  # offset behind it, in its file


@dataclass(slots=True)
class Segment:
    path: Path
    size: int


class Segments:
    """Opens a folder and repairs it. Raises OSError where the disk fails."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._generation, self._segments = self._open()
        self.damaged = 0  # lines that were passed over when what is left was numbered
        self.known = 0  # forgotten up to here
        self.is_settled = False
        self._cursor = 0  # offset in the first segment, behind what is forgotten
        sound = (line.seq for segment in self._segments for line in self._lines(segment, 0))
        last = max(*(_first_seq(segment.path) for segment in self._segments), *sound, 0, 0)
        self._booted_at = self.next_seq = last + PROVISIONAL
        self._file = self._start_segment()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(segment.size for segment in self._segments)

    def write(self, rows: Sequence[NewRow]) -> None:
        """Durable when it returns; after an OSError none of them is there, and they may be written again."""
        if self._segments[-1].size >= SEGMENT_BYTES:
            os.close(self._file)
            self._file = self._start_segment()
        active, seq, lines = self._segments[-1], self.next_seq, []
        for key, cost, rest in rows:
            lines.append(_encode(seq, key, cost, rest))
            seq += 1
        data = b"".join(lines)
        try:
            _write_all(self._file, data)
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, active.size)
            raise
        active.size += len(data)
        self.next_seq = seq

    def read(self, rows_max: int, bytes_max: int) -> list[Line]:
        """The oldest rows that are not forgotten; none before `settle`."""
        if not self.is_settled:
            return []
        rows = self._read(rows_max, bytes_max)
        if any(row.seq != self.known + 1 + place for place, row in enumerate(rows)):
            self.settle(self.known)  # a line went bad since: who comes behind it moves up
            rows = self._read(rows_max, bytes_max)
        return rows

    def forget(self, seq: int) -> None:
        """Everything up to a number is kept elsewhere now; files that hold nothing else are removed."""
        seq = min(seq, self.next_seq - 1)
        while self.known < seq:
            segment = self._segments[0]
            for line in self._lines(segment, self._cursor):
                if line.seq > seq:
                    return
                self.known, self._cursor = line.seq, line.end
            if len(self._segments) == 1:
                self.known = seq
                return
            segment.path.unlink(missing_ok=True)
            del self._segments[0]
            self._cursor = 0

    def settle(self, known: int) -> int:
        """The marketplace has everything up to `known`, and nothing after it: number what is left from there on.

        Returns how many rows are left.
        """
        seq, last, first = known + 1, 0, not self.is_settled
        path = self._path(self._generation + 1, seq)
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            for segment in self._segments:
                for line in self._lines(segment, 0, is_counted=True):
                    is_new = line.seq > known or (first and line.seq >= self._booted_at)
                    if is_new and line.seq > last:  # the same number again: a write that failed half-way
                        last = line.seq
                        file.write(_encode(seq, line.key, line.cost, line.rest))
                        seq += 1
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        new.rename(path)
        sync_folder(self._folder)
        os.close(self._file)
        for segment in self._segments:
            segment.path.unlink(missing_ok=True)
        self._generation += 1
        self.known = known
        self._segments, self._cursor, self.next_seq, self.is_settled = [Segment(path, size)], 0, seq, True
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return seq - known - 1

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> tuple[int, list[Segment]]:
        """The files of the newest generation; what an interrupted `settle` left is removed."""
        for unfinished in self._folder.glob("usage-*.new"):
            unfinished.unlink()
        paths = sorted(self._folder.glob("usage-*.log"))
        newest = max((_generation(path) for path in paths), default=0)
        for path in [path for path in paths if _generation(path) < newest]:
            path.unlink()
        return newest, [Segment(path, path.stat().st_size) for path in paths if _generation(path) == newest]

    def _start_segment(self) -> int:
        path = self._path(self._generation, self.next_seq)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        sync_folder(self._folder)
        self._segments.append(Segment(path, 0))
        return file

    def _path(self, generation: int, seq: int) -> Path:
        return self._folder / f"usage-{generation:08d}-{seq:020d}.log"

    def _read(self, rows_max: int, bytes_max: int) -> list[Line]:
        rows: list[Line] = []
        size, offset = 0, self._cursor
        for segment in self._segments:
            for line in self._lines(segment, offset):
                size += len(line.rest)
                if len(rows) == rows_max or size > bytes_max:
                    return rows
                rows.append(line)
            offset = 0
        return rows

    def _lines(self, segment: Segment, offset: int, *, is_counted: bool = False) -> Iterator[Line]:
        """Every sound line from an offset on; a bad one is passed over."""
        with segment.path.open("rb") as file:
            file.seek(offset)
            while raw := file.readline(LINE_BYTES_MAX):
                offset += len(raw)
                line = _decode(raw, offset)
                if line is not None:
                    yield line
                elif is_counted:
                    self.damaged += 1


def _encode(seq: int, key: str, cost: int, rest: bytes) -> bytes:
    text = b"%d %s %d %s" % (seq, key.encode(), cost, rest)
    return b"%08x %s\n" % (crc32(text), text)


def _decode(raw: bytes, end: int) -> Line | None:
    """None: the line is torn, or was changed."""
    if raw[-1:] != b"\n" or raw[8:9] != b" ":
        return None
    text = raw[9:-1]
    if b"%08x" % crc32(text) != raw[:8]:
        return None
    seq, key, cost, rest = text.split(b" ", 3)
    return Line(int(seq), key.decode(), int(cost), rest, end)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _generation(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _first_seq(path: Path) -> int:
    return int(path.stem.split("-")[2])
