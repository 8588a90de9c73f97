"""Ranks wait for one another's long work as long as it goes on, and not for what stands still or has failed."""

from __future__ import annotations

import json
import multiprocessing
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from runtimes.contract import EventWriter
from runtimes.train import parallel, preparing
from runtimes.train.errors import BadData, TrainError
from runtimes.train.parallel import Progress, Ranks, wait_for_results

COLLECTIVE_SECONDS = 4  # of the group: longer than a rank is silent, shorter than the work
WORK_SECONDS = 10
STALLED_SECONDS = 3
STILL_SECONDS = 6


def compute(progress: Progress) -> str:
    end = time.monotonic() + WORK_SECONDS
    while time.monotonic() < end:
        progress.text = f"{sum(range(10_000)):,} things"
    return "computed"


def count(progress: Progress) -> str:
    end = time.monotonic() + WORK_SECONDS
    progress.done, progress.total, progress.unit = 0, 1_000_000_000, "things"
    while time.monotonic() < end:
        progress.done += len(range(1000))
    return "counted"


def spin(progress: Progress) -> str:
    """Computes without end, and gets nowhere."""
    progress.done = 0
    compute(progress)
    return "spun"


def stand_still(progress: Progress) -> str:
    time.sleep(600)
    return "never"


def fail(progress: Progress) -> str:
    raise BadData("the file is bad")


def be_quick(progress: Progress) -> str:
    return "quick"


def take_part(rank: int, nodes: int, store: str, leaders_work: Callable[[Progress], str], answers: Any) -> None:
    """One of two ranks; the second one has nothing to do. On two nodes each is its node's leader."""
    quick: Any = preparing
    quick.PREPARING_FIRST_SECONDS, quick.PREPARING_EVERY_SECONDS = 2.0, 1.0
    parallel.AGREE_SECONDS, parallel.REPORT_SECONDS, parallel.STALLED_SECONDS = 0.5, 2, STALLED_SECONDS
    parallel.STILL_SECONDS = STILL_SECONDS
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    dist.barrier()  # torch takes either of them a while to load
    control: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=COLLECTIVE_SECONDS))
    node, leads = rank * (nodes - 1), nodes == 2 or rank == 0
    events = EventWriter(f"{store}-events-{rank}" if leads else "")
    ranks = Ranks(rank, 2, node, nodes, rank == 0, leads, None, control=control, checkpoint=control, node_events=events)
    try:
        answers.put((rank, wait_for_results(ranks, be_quick if rank else leaders_work, "data")))
    except TrainError as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
    answers.close()
    answers.join_thread()


def run_both(tmp_path: Path, work: Callable[[Progress], str], *, nodes: int = 1) -> Any:
    """What each rank has in the end; their events lie in the folder."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    store = str(tmp_path / "store")
    started = [context.Process(target=take_part, args=(rank, nodes, store, work, answers)) for rank in range(2)]
    for process in started:
        process.start()
    found = dict(answers.get(timeout=60) for _ in started)
    for process in started:
        process.join(30)
    assert found[0] == found[1]
    return found[0]


def written(tmp_path: Path, rank: int) -> list[dict[str, Any]]:
    """The events that this rank has written."""
    path = tmp_path / f"store-events-{rank}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


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
    assert run_both(tmp_path, work) == answer
    said = capfd.readouterr().out
    assert bool(re.search(r"data: \d+ s so far, 49,995,000 things", said)) == (work is compute), said
    assert bool(written(tmp_path, 0)) == (work is compute), "what does not move reports nothing"


def test_each_nodes_leader_reports_how_far_the_first_one_is(tmp_path: Path) -> None:
    assert run_both(tmp_path, count, nodes=2) == ["counted", "quick"]
    for rank in (0, 1):
        events = written(tmp_path, rank)
        assert 3 <= len(events) <= WORK_SECONDS
        assert {(each["event"], each["what"], each["unit"]) for each in events} == {("preparing", "data", "things")}
        amounts = [each["done"] for each in events]
        assert amounts == sorted(set(amounts))
        assert events[0]["seconds"] >= 2


def test_a_processor_that_spins_reports_nothing_and_is_ended(tmp_path: Path) -> None:
    ended = "BadData: data: 49,995,000 things, and nothing more in 6 s: a record or template has no end"
    assert run_both(tmp_path, spin) == ended
    assert len(written(tmp_path, 0)) <= 1, "that the amount is known at all was the only move"
