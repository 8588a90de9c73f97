"""Ranks that lose each other say where they were. On a GPU NCCL's watchdog writes the same file before it aborts the
rank: that needs two GPUs, and only its settings are tested here (tests/unit)."""

from __future__ import annotations

from pathlib import Path

from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish


def test_a_rank_that_waits_for_another_says_in_which_collective(tmp_path: Path) -> None:
    work = Work(tmp_path, ranks=2, module="tests.integration.runtimes.train.stalling_rank")
    old = tmp_path / "collectives" / "rank-1"
    old.parent.mkdir()
    old.write_bytes(b"of an earlier start")
    work.write({**MICRO_CONFIG, "steps": 9, "evaluate_every": 0, "sample_every": -1, "strategy": "ddp"})
    code, output = finish(work.start())
    assert code not in (0, 64, 65, 75, 76, 77), output
    assert "Where the ranks of this node were" in output
    (line,) = [line for line in output.splitlines() if "rank 0, group 0: its last collective is number" in line]
    assert "gloo:" in line
    assert not old.exists()
