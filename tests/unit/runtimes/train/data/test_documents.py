"""The files of the data: what is read, in which order, how they are cut, and in how much memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from runtimes.job_files import JobFiles
from runtimes.train.data import documents
from runtimes.train.data.documents import Record, find_runs, read_records
from runtimes.train.errors import BadData


def records(*names: str, folder: Path, seed: int = 0) -> list[Record]:
    return list(read_records(find_runs(names, JobFiles(folder), seed)))


def values(*names: str, folder: Path, seed: int = 0) -> list[object]:
    return [record.value for record in records(*names, folder=folder, seed=seed)]


def write_lines(path: Path, *lines: object) -> None:
    path.write_text("".join(json.dumps(line) + "\n\n" for line in lines))


def test_python_documentation_needs_no_file(tmp_path: Path) -> None:
    found = values("python-docs", folder=tmp_path)
    assert len(found) > 70
    assert sum(len(str(text)) for text in found) > 300_000


def test_text_and_jsonl_are_read_in_an_order_that_the_seed_decides(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    write_lines(tmp_path / "b.jsonl", *({"text": f"line {i}", "n": i} for i in range(20)))
    found = values("*.txt", "b.jsonl", folder=tmp_path, seed=1)
    assert sorted(map(str, found)) == sorted(map(str, ["alpha", *({"text": f"line {i}", "n": i} for i in range(20))]))
    assert found == values("*.txt", "b.jsonl", folder=tmp_path, seed=1)
    assert found != values("*.txt", "b.jsonl", folder=tmp_path, seed=2)


def test_a_table_is_read_by_its_rows(tmp_path: Path) -> None:
    rows = [{"text": f"row {i}", "n": i} for i in range(1000)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=300)
    found = records("a.parquet", folder=tmp_path)
    assert sorted(record.value["n"] for record in found) == list(range(1000))  # type: ignore[index]
    assert [record.offset for record in found] == [record.value["n"] for record in found]  # type: ignore[index]
    assert len({id(record.run) for record in found}) == 4
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(BadData, match=r"b\.parquet cannot be read"):
        values("b.parquet", folder=tmp_path)


def test_of_a_datasets_folder_the_training_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "set" / "data").mkdir(parents=True)
    (tmp_path / "set" / "README.md").write_text("about it")
    for split in ("train", "test"):
        table = pa.Table.from_pylist([{"text": split}])
        parquet.write_table(table, tmp_path / "set" / "data" / f"{split}-00000-of-00001.parquet")
    assert values("set", folder=tmp_path) == [{"text": "train"}]
    write_lines(tmp_path / "set" / "a.jsonl", {"text": "other"})
    (tmp_path / "set" / "data" / "train-00000-of-00001.parquet").unlink()
    assert sorted(map(str, values("set", folder=tmp_path))) == ["{'text': 'other'}", "{'text': 'test'}"]


def test_of_several_sets_to_train_on_one_must_be_named(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for name in ("train_gen-00000-of-00001", "train_sft-00000-of-00002", "train_sft-00001-of-00002"):
        parquet.write_table(pa.Table.from_pylist([{"text": name}]), tmp_path / "set" / f"{name}.parquet")
    with pytest.raises(BadData, match=r"several sets to train on: name one, such as set/train_gen-\*, set/train_sft-"):
        values("set", folder=tmp_path)
    assert len(values("set/train_sft-*", folder=tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "'none.txt' is not among the job's files"),
        ("a.bin", b"x", "a.bin is of no known kind"),
        ("a.txt", b"\xff\xfe", "a.txt is not UTF-8 text"),
        ("a.jsonl", b'{"text": "good"}\nnothing\n', "a.jsonl line 2 is not a JSON object"),
        ("a.jsonl", b'{"text": "good"}\n\n["text"]\n', "a.jsonl line 3 is not a JSON object"),
        ("a.jsonl", b'{"text": "good"}\n{"text": "\xff"}\n', "a.jsonl line 2 is not UTF-8 text: invalid start byte"),
        ("a.jsonl", b'{"text": "half a pair \\uD83D of two"}\n', "a.jsonl line 1 is not UTF-8 text: surrogates"),
        ("a.json", b"[]", r"a.json is of no known kind, .* becomes lines by: jq -c"),
        ("../a.txt", None, "must be a path below the job's files"),
        ("/etc/passwd", None, "must be a path below the job's files"),
    ],
)
def test_bad_data_is_named(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=message):
        values(name, folder=tmp_path)


def test_link_that_leads_out_of_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "secret.txt").write_text("Bob's")
    (tmp_path / "input" / "mine.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(BadData, match="leads out"):
        values("mine.txt", folder=tmp_path / "input")


@pytest.mark.parametrize("line", ["line {} ½ 猫\n", "猫{}"], ids=["lines", "no line ends"])
def test_a_long_text_comes_in_pieces_that_are_the_text(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PIECE_BYTES", 5000)
    monkeypatch.setattr(documents, "RUNS", 8)
    text = "".join(line.format(number) for number in range(20_000))
    (tmp_path / "a.txt").write_text(text)
    found = sorted(records("a.txt", folder=tmp_path), key=lambda record: (record.run.start, record.is_end))
    whole = {run.start: "" for run in find_runs(("a.txt",), JobFiles(tmp_path), 0)}
    for record in records("a.txt", folder=tmp_path):  # those of a run come in their order
        whole[record.run.start] += str(record.value)
    assert "".join(whole[start] for start in sorted(whole)) == text
    assert len(whole) in {8, 9}
    assert [record.is_end for record in found].count(True) == len(whole), "each run is one text"
    assert [record.is_begin for record in found].count(True) == len(whole)
    if line.endswith("\n"):
        assert all(str(record.value).endswith("\n") for record in found)


def test_lines_are_cut_into_few_runs_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "RUNS", 10)
    monkeypatch.setattr(documents, "SCAN_BYTES", 64)  # ends of lines fall anywhere in what is read at once
    write_lines(tmp_path / "a.jsonl", *({"n": i, "text": "x" * (i % 97)} for i in range(1000)))
    runs = find_runs(("a.jsonl",), JobFiles(tmp_path), 3)
    assert 5 <= len(runs) <= 11
    found = records("a.jsonl", folder=tmp_path, seed=3)
    assert sorted(record.value["n"] for record in found) == list(range(1000))  # type: ignore[index]
    assert str(found[-1]) == f"a.jsonl line {found[-1].value['n'] * 2 + 1}"  # type: ignore[index]


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "RECORD_BYTES_MAX", 1 << 20)
    (tmp_path / "a.jsonl").write_bytes(b"x" * (3 << 20))
    with pytest.raises(BadData, match=r"a\.jsonl has a line of more than 1 MiB"):
        values("a.jsonl", folder=tmp_path)


@pytest.mark.parametrize("name", ["sparse.txt", "lines.jsonl"])
def test_memory_does_not_grow_with_the_data(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "RUNS", 500)  # as many at both sizes

    def peak(size: int) -> int:
        with (tmp_path / name).open("wb") as file:
            if name == "sparse.txt":
                file.truncate(size)  # zeros, which are characters, too
            else:
                line = json.dumps({"text": "word " * 2000}).encode() + b"\n"
                file.writelines(line for _ in range(size // len(line)))
        tracemalloc.start()
        try:
            read = sum(1 for _ in read_records(find_runs((name,), JobFiles(tmp_path), 0)))
            return tracemalloc.get_traced_memory()[1] if read else 0
        finally:
            tracemalloc.stop()

    small, large = peak(16 << 20), peak(256 << 20)
    assert 0 < large < small + (2 << 20), f"{small:,} bytes, then {large:,}"
