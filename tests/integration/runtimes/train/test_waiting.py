"""Ranks wait for one another's long work as long as it goes on, and not for what stands still or has failed."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from runtimes.train import parallel
from runtimes.train.errors import BadData, TrainError
from runtimes.train.parallel import Progress, Ranks, wait_for_results

COLLECTIVE_SECONDS = 4  # of the group: longer than a rank is silent, shorter than the work
WORK_SECONDS = 10
STALLED_SECONDS = 3


def compute(progress: Progress) -> str:
    end = time.monotonic() + WORK_SECONDS
    while time.monotonic() < end:
        progress.text = f"{sum(range(10_000)):,} things"
    return "computed"


def stand_still(progress: Progress) -> str:
    time.sleep(600)
    return "never"


def fail(progress: Progress) -> str:
    raise BadData("the file is bad")


def be_quick(progress: Progress) -> str:
    return "quick"


def take_part(rank: int, store: str, leaders_work: Callable[[Progress], str], answers: Any) -> None:
    """One of two ranks; the second one has nothing to do."""
    parallel.AGREE_SECONDS, parallel.REPORT_SECONDS, parallel.STALLED_SECONDS = 0.5, 2, STALLED_SECONDS
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    dist.barrier()  # torch takes either of them a while to load
    control: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=COLLECTIVE_SECONDS))
    ranks = Ranks(rank, 2, 0, 1, rank == 0, rank == 0, device=None, control=control, checkpoint=control)
    try:
        answers.put((rank, wait_for_results(ranks, be_quick if rank else leaders_work, "data")))
    except TrainError as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
    answers.close()
    answers.join_thread()


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (compute, ["computed", "quick"]),
        (stand_still, "TrainError: data: nothing has moved for 3 s"),
        (fail, "BadData: the file is bad"),
    ],
)
def test_both_ranks_have_what_both_did(
    tmp_path: Path, capfd: Any, work: Callable[[Progress], str], answer: Any
) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    started = [
        context.Process(target=take_part, args=(rank, str(tmp_path / "store"), work, answers)) for rank in range(2)
    ]
    for process in started:
        process.start()
    found = dict(answers.get(timeout=60) for _ in started)
    for process in started:
        process.join(30)
    assert found == {0: answer, 1: answer}
    said = capfd.readouterr().out
    assert bool(re.search(r"data: \d+ s so far, 49,995,000 things", said)) == (work is compute), said
