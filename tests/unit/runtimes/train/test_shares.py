"""How a batch is shared out by the ranks' speeds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from runtimes.contract import EventWriter
from runtimes.train import shares
from runtimes.train.shares import BlockClock, Shares, equal_shares, shares_by_speed


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the ranks tell each other, in place of an exchange between processes."""
    found: list[float] = []
    monkeypatch.setattr(shares, "gather_results", lambda ranks, work: list(found))
    return found


def of_rank(rank: int, tmp_path: Path, *, batch_size: int, world_size: int, measured: bool = True) -> Shares:
    ranks: Any = SimpleNamespace(rank=rank, world_size=world_size, is_leader=False)
    return Shares(batch_size, ranks, EventWriter(str(tmp_path / "events")), measured=measured)


@pytest.mark.parametrize(
    ("batch_size", "speeds", "expected"),
    [
        (12, [2.0, 1.0], [8, 4]),
        (16, [2.0, 1.0], [11, 5]),
        (9, [1.0, 1.0], [5, 4]),
        (8, [3.0, 1.0, 3.0, 1.0], [3, 1, 3, 1]),
        (4, [1000.0, 1.0, 1.0], [2, 1, 1]),
        (3, [5.0, 1.0, 1.0, 1.0], [0, 1, 1, 1]),  # fewer sequences than ranks: equal shares
    ],
)
def test_last_rank_is_done_as_soon_as_can_be(batch_size: int, speeds: list[float], expected: list[int]) -> None:
    assert shares_by_speed(batch_size, speeds) == expected


def test_no_other_split_of_a_batch_is_done_sooner() -> None:
    speeds = [1.0, 1.7, 0.4]
    best = max(count / speed for count, speed in zip(shares_by_speed(14, speeds), speeds, strict=True))
    others = [(a, b, 14 - a - b) for a in range(1, 13) for b in range(1, 14 - a)]
    assert best == min(max(count / speed for count, speed in zip(each, speeds, strict=True)) for each in others)


def test_parts_of_the_ranks_follow_each_other_and_are_the_whole(tmp_path: Path, told: list[float]) -> None:
    each = [of_rank(rank, tmp_path, batch_size=16, world_size=3) for rank in range(3)]
    told += [4.0, 1.0, 3.0]
    for one in each:
        one.adapt(7, seconds=1.0, sequences=1)
    assert [(one.mine.start, one.mine.stop) for one in each] == [(0, 8), (8, 10), (10, 16)]
    assert [one.passes(3) for one in each] == [3, 3, 3]
    assert each[0].passes(None) == 2, "the first has 8 now, and an equal share of 6 is what fitted"
    lines = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [(line["step"], line["sequences"]) for line in lines] == [(7, [8, 2, 6])] * 3


def test_small_gain_changes_nothing_and_a_single_hiccup_counts_half(tmp_path: Path, told: list[float]) -> None:
    one = of_rank(0, tmp_path, batch_size=100, world_size=2)
    told[:] = [1.04, 1.0]
    one.adapt(1, seconds=1.0, sequences=1)
    assert one.counts == [50, 50]
    told[:] = [1.04, 0.2]
    one.adapt(11, seconds=1.0, sequences=1)
    assert one.counts == shares_by_speed(100, [1.04, 0.6])


def test_equal_shares_are_never_measured(tmp_path: Path) -> None:
    one = of_rank(1, tmp_path, batch_size=9, world_size=2, measured=False)
    assert not any(one.is_measured(step) for step in range(50))
    assert one.counts == equal_shares(9, 2) == [4, 5]
    alone = of_rank(0, tmp_path, batch_size=9, world_size=1)
    assert not any(alone.is_measured(step) for step in range(50))


def test_first_step_of_a_start_is_not_measured(tmp_path: Path) -> None:
    one = of_rank(0, tmp_path, batch_size=9, world_size=2)
    assert [done for done in range(30) if one.is_measured(done)] == [1, 11, 21]


class Model(nn.Module):
    """Two blocks, and much beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.layers:
            x = block(x)
        return x


def test_clock_counts_blocks_of_a_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr(shares, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    model, x = Model(), torch.zeros(1, 4)
    clock = BlockClock(model, torch.device("cpu"))
    model(x)
    with clock.running():
        model(x)
        model(x)
        model.eval()
        model(x)
        model.train()
        with torch.no_grad():
            model(x)
    model(x)
    assert clock.seconds() == 4.0, "four forward passes of a block, each a tick"
