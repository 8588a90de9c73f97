"""What the launcher makes of the ranks' traces: whole ones, false ones, none."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from runtimes.train import collective_trace
from runtimes.train.collective_trace import describe_traces, record_collectives, remove_traces, write_trace


def entry(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4096, 2]],
        "state": "started",
        "frames": [
            {"name": "all_reduce", "filename": "/usr/lib/torch/distributed/distributed_c10d.py", "line": 9},
            {"name": "one_step", "filename": "/srv/runtimes/train/loop.py", "line": 131},
        ],
        **changes,
    }


def leave(work: Path, rank: int, content: bytes | list[dict[str, Any]]) -> None:
    folder = work / collective_trace.FOLDER
    folder.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else pickle.dumps({"version": "2.10", "entries": content})
    (folder / f"rank-{rank}").write_bytes(data)


def test_each_rank_says_where_it_was_and_who_is_behind(tmp_path: Path) -> None:
    leave(tmp_path, 10, [entry(6)])
    leave(tmp_path, 2, [entry(6), entry(7, state="scheduled", frames=[])])
    began = "nccl:all_reduce of [[4096, 2]], started, in one_step of loop.py:131"
    assert describe_traces(tmp_path) == [
        "rank 2, group 0: its last collective is number 7, nccl:all_reduce of [[4096, 2]], scheduled",
        f"rank 10, group 0: its last collective is number 6, {began}; others began number 7",
    ]


class Calls:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("called",))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1]),
        pickle.dumps({"entries": [{}]}),
        pickle.dumps({"entries": [Calls()]}),
        pickle.dumps({"entries": [entry(1, is_p2p=True, p2p_seq_id="x")]}),
    ],
    ids=range(6),
)
def test_what_is_no_trace_is_passed_over_and_never_runs(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leave(tmp_path, 0, content)
    leave(tmp_path, 1, [entry(3)])
    (line,) = describe_traces(tmp_path)
    assert line.startswith("rank 1,")
    assert not (tmp_path / "called").exists()


def test_long_and_strange_texts_are_shortened(tmp_path: Path) -> None:
    leave(tmp_path, 0, [entry(1, profiling_name="\x1b[2J" + "a" * 5000)])
    (line,) = describe_traces(tmp_path)
    assert len(line) < 300 and "\x1b" not in line


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_trace, "FILE_BYTES_MAX", 10)
    leave(tmp_path, 0, [entry(1)])
    assert describe_traces(tmp_path) == []


def test_the_recorder_dumps_into_the_work_folder_unless_the_job_says_otherwise(tmp_path: Path) -> None:
    given = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    record_collectives(given, tmp_path)
    assert given["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        assert given[name] == str(tmp_path / "collectives" / "rank-")
    assert int(given["TORCH_FR_BUFFER_SIZE"]) == int(given["TORCH_NCCL_TRACE_BUFFER_SIZE"]) > 0
    assert (tmp_path / "collectives").is_dir()


def test_a_rank_without_a_process_group_writes_no_more_than_an_empty_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "nowhere", 0)
    assert not (tmp_path / "nowhere").exists()
    assert describe_traces(tmp_path) == []
    leave(tmp_path, 0, [entry(1)])
    remove_traces(tmp_path)
    assert describe_traces(tmp_path) == []
