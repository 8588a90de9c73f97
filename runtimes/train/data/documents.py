"""What the files of the data hold, one record at a time: a text, or a line's object. Memory stays the same at any size.

Files are cut into runs of consecutive records, some 65,000 for all of them, and the runs are put in an order that the
seed decides: of small data each record is a run of its own, of large data a run is read from the disk in one piece.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar

from runtimes.job_files import JobFiles
from runtimes.train.errors import BadData

BUILT_IN: Final = "python-docs"
TEXT_SUFFIXES: Final = (".txt", ".md", ".rst", ".text")
LINES_SUFFIXES: Final = (".jsonl", ".ndjson")
TABLE_SUFFIX: Final = ".parquet"
SUFFIXES: Final = (*TEXT_SUFFIXES, *LINES_SUFFIXES, TABLE_SUFFIX)
DATA_BYTES_MAX: Final = 1 << 40
RECORD_BYTES_MAX: Final = 64 << 20  # of one line
PIECE_BYTES: Final = 256 << 10  # a longer text is encoded in pieces of about this
RUNS: Final = 1 << 16
LINE_END_BYTES: Final = 4096  # before a cut, in which the end of a line is looked for
ROWS_AT_ONCE: Final = 256  # of a table
SCAN_BYTES: Final = 1 << 20
OF_PARTS: Final = re.compile(r"(.*)-\d{5}-of-\d{5}")
NAMED_MAX: Final = 5
ABOUT: Final = frozenset({"README", "LICENSE"})  # of a dataset, not in it

Value = str | dict[str, Any]
OfDataset = TypeVar("OfDataset", bound=PurePath)
Fetched = Mapping[str, Sequence[Path]]  # the files of each name that is an address, where they were fetched to
NOTHING_FETCHED: Final[Fetched] = {}


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one file. `start` and `end` are bytes; of a table the number of a row group, and the next.

    Of the built-in data `path` is None and `start` the number of a topic.
    """

    path: Path | None
    start: int
    end: int
    size: int  # bytes on disk, for progress

    @property
    def name(self) -> str:
        """For messages."""
        return self.path.name if self.path is not None else BUILT_IN


@dataclass(frozen=True, slots=True)
class Record:
    """One text, or one object. `is_begin`, `is_end`: False for a piece of a text that goes on before or after it.

    A text that is longer than a run is one text in each of them: what follows a run is another's.
    """

    value: Value
    run: Run
    offset: int  # of a line's first byte, or of a table's row
    is_begin: bool = True
    is_end: bool = True

    def __str__(self) -> str:
        """Where it stands; a line's number is counted only here, where somebody needs it."""
        path = self.run.path
        if path is None or path.suffix not in LINES_SUFFIXES:
            return f"{self.run.name} row {self.offset + 1}"
        return f"{path.name} line {_line_number(path, self.offset)}"


def find_runs(names: tuple[str, ...], files: JobFiles, seed: int, fetched: Fetched = NOTHING_FETCHED) -> list[Run]:
    """The runs of the data in an order decided by `seed`; raises BadData that names the wrong file."""
    paths = find_paths(names, files, fetched)
    total = sum(path.stat().st_size for path in paths if path is not None)
    if total > DATA_BYTES_MAX:
        raise BadData(f"the data has more than {DATA_BYTES_MAX >> 40} TiB")
    runs = [run for path in paths for run in _runs_in(path, max(1, total // RUNS))]
    random.Random(seed).shuffle(runs)
    return runs


def find_paths(names: tuple[str, ...], files: JobFiles, fetched: Fetched = NOTHING_FETCHED) -> list[Path | None]:
    """The files of the data, None for the built-in ones; raises BadData that names what is not there."""
    return [path for name in names for path in (fetched[name] if name in fetched else _paths_of(name, files))]


def choose_of_dataset(name: str, below: Iterable[OfDataset]) -> list[OfDataset]:
    """Which files of a dataset's folder are read; where some are named for training, the others are kept for tests.

    `name` is the folder's, for messages, `below` are paths relative to it. Raises BadData where several sets are.
    """
    found = [path for path in below if path.suffix in SUFFIXES and path.stem not in ABOUT]
    trained = [path for path in found if "train" in re.split(r"[^a-z]+", str(path).lower())]
    parts = {match[1] for path in trained if (match := OF_PARTS.match(str(path)))}
    if len(parts) > 1:
        named = ", ".join(f"{name}/{part}-*" for part in sorted(parts)[:NAMED_MAX])
        raise BadData(f"data {name!r} has several sets to train on: name one, such as {named}")
    return trained or found


def unknown_kind(name: str) -> BadData:
    """Of a file whose suffix is none of SUFFIXES."""
    list_in_json = " (a list in JSON becomes lines by: jq -c '.[]' FILE)" if name.endswith(".json") else ""
    return BadData(f"{name} is of no known kind, expected one of {', '.join(SUFFIXES)}{list_in_json}")


def read_records(runs: list[Run]) -> Iterator[Record]:
    """Every record of the runs, in their order, but for empty texts; raises BadData that names the wrong line."""
    for run in runs:
        if run.path is None:
            yield Record(_topics()[run.start], run, 0)
        elif run.path.suffix in TEXT_SUFFIXES:
            yield from _pieces(run, run.path)
        elif run.path.suffix in LINES_SUFFIXES:
            yield from _lines(run, run.path)
        else:
            yield from _rows(run, run.path)


def _paths_of(name: str, files: JobFiles) -> Iterator[Path | None]:
    if name == BUILT_IN:
        yield None
        return
    place = files.place_of(name)
    if place.is_outside:
        raise BadData(f"data {name!r} must be a path below {place.text}")
    folder = place.root / place.rest
    paths = [] if folder == place.root else sorted(path for path in place.root.glob(place.rest) if path.is_file())
    if not paths and folder.is_dir():  # as the hub keeps a dataset: a folder with files below it
        below = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        paths = sorted(folder / path for path in choose_of_dataset(folder.name, below))
    if not paths:
        raise BadData(f"data {name!r} is not {'among' if place.label is None else 'in'} {place.text}")
    for path in paths:
        if not place.holds(path):
            raise BadData(f"data {name!r} leads out of {place.text}")
        yield path


def _runs_in(path: Path | None, run_bytes: int) -> Iterator[Run]:
    if path is None:
        yield from (Run(None, number, number + 1, len(text)) for number, text in enumerate(_topics()))
    elif path.suffix in TEXT_SUFFIXES:
        yield from _cuts(path, max(run_bytes, PIECE_BYTES))
    elif path.suffix in LINES_SUFFIXES:
        yield from _line_cuts(path, run_bytes)
    elif path.suffix == TABLE_SUFFIX:
        yield from _row_groups(path)
    else:
        raise unknown_kind(path.name)


def _cuts(path: Path, run_bytes: int) -> Iterator[Run]:
    """Of a text: cut where a line ends, if one ends shortly before, and never inside a character."""
    size, start = path.stat().st_size, 0
    with path.open("rb") as file:
        while size - start > run_bytes:
            file.seek(start + run_bytes - min(run_bytes, LINE_END_BYTES))
            end = file.tell() + _last_end(file.read(min(run_bytes, LINE_END_BYTES)))
            yield Run(path, start, end, end - start)
            start = end
    if size > start:
        yield Run(path, start, size, size - start)


def _last_end(data: bytes) -> int:
    """The number of bytes up to the last line's end in `data`, else up to its last whole character."""
    if (end := data.rfind(b"\n") + 1) > 0:
        return end
    for back in range(1, min(4, len(data)) + 1):
        first = data[-back]
        if first & 0xC0 != 0x80:  # the first byte of a character, which says how many bytes it has
            length = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return len(data) if length <= back else len(data) - back
    return len(data)  # no UTF-8: reading it says where


def _line_cuts(path: Path, run_bytes: int) -> Iterator[Run]:
    """Of lines: cut after whole ones, each at the first end from `run_bytes` on."""
    start = at = 0
    with path.open("rb") as file:
        while data := file.read(SCAN_BYTES):
            found = data.find(b"\n", max(0, start + run_bytes - 1 - at))
            while found >= 0:
                end = at + found + 1
                yield Run(path, start, end, end - start)
                start = end
                found = data.find(b"\n", max(0, start + run_bytes - 1 - at))
            at += len(data)
            if at - start > RECORD_BYTES_MAX + run_bytes:
                raise BadData(f"{path.name} has a line of more than {RECORD_BYTES_MAX >> 20} MiB")
    if at > start:
        yield Run(path, start, at, at - start)


def _pieces(run: Run, path: Path) -> Iterator[Record]:
    at = run.start
    with path.open("rb") as file:
        for piece in _cuts_within(file, run):
            try:
                text = piece.decode("utf-8")
            except UnicodeDecodeError as error:
                raise BadData(f"{path.name} is not UTF-8 text (byte {at + error.start})") from error
            begins = at == run.start
            at += len(piece)
            if text.strip() or not begins:
                yield Record(text, run, 0, begins, at >= run.end)


def _cuts_within(file: Any, run: Run) -> Iterator[bytes]:
    file.seek(run.start)
    left = run.end - run.start
    while left > 0:
        data = file.read(min(left, PIECE_BYTES))
        if left > len(data):
            keep = _last_end(data[-LINE_END_BYTES:]) + max(0, len(data) - LINE_END_BYTES)
            file.seek(keep - len(data), 1)
            data = data[:keep]
        if not data:
            return  # it became shorter
        left -= len(data)
        yield data


def _lines(run: Run, path: Path) -> Iterator[Record]:
    at = run.start
    with path.open("rb") as file:
        file.seek(at)
        while at < run.end:
            line = file.readline(RECORD_BYTES_MAX + 1)
            if len(line) > RECORD_BYTES_MAX:
                raise BadData(f"{path.name} has a line of more than {RECORD_BYTES_MAX >> 20} MiB")
            if not line:
                return
            if line.strip():
                yield _record_of(line, run, at)
            at += len(line)


def _record_of(line: bytes, run: Run, at: int) -> Record:
    try:
        value = json.loads(line.decode("utf-8-sig" if at == 0 else "utf-8"))
        if b"\\ud" in line.lower():  # of a pair of which one half alone is no character
            json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise BadData(f"{Record('', run, at)} is not UTF-8 text: {error.reason}") from error
    except (ValueError, RecursionError):
        value = None
    record = Record(value, run, at)
    if not isinstance(value, dict):
        raise BadData(f"{record} is not a JSON object")
    return record


def _row_groups(path: Path) -> Iterator[Run]:
    with _table(path) as table:
        for number in range(table.metadata.num_row_groups):
            yield Run(path, number, number + 1, int(table.metadata.row_group(number).total_byte_size))


def _rows(run: Run, path: Path) -> Iterator[Record]:
    row = 0
    with _table(path) as table:
        row += sum(table.metadata.row_group(number).num_rows for number in range(run.start))
        try:
            for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=[run.start]):
                for value in batch.to_pylist():
                    yield Record(value, run, row)
                    row += 1
        except (OSError, ValueError) as error:  # pyarrow's own are among these
            raise BadData(f"{path.name} cannot be read: {error!s:.200}") from error


def _table(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise BadData(f"{path.name} needs pyarrow, which this node's runtime lacks: give .jsonl instead") from error
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise BadData(f"{path.name} cannot be read: {error!s:.200}") from error


def _line_number(path: Path, offset: int) -> int:
    count = 1
    with path.open("rb") as file:
        while offset > 0 and (data := file.read(min(offset, SCAN_BYTES))):
            count += data.count(b"\n")
            offset -= len(data)
    return count


@cache
def _topics() -> list[str]:
    from pydoc_data.topics import topics

    return [str(topics[key]) for key in sorted(topics)]
