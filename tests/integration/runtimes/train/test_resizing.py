"""A gang has more nodes, or fewer, than before: the launchers stay, and the training is the uninterrupted one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from runtimes.contract import JOINED_FILE, LOST_PEER_FILE, MANIFEST_NAME, SIZES_FILE, Env, ExitCode
from tests.integration.runtimes.conftest import STEPS
from tests.integration.runtimes.programs import Work, finish, kill_group, losses, samples, wait_until
from tests.integration.runtimes.train.gang_nodes import SAVED_STEP, announce, environment, gang, join_parts, node
from tests.integration.runtimes.train.test_resume import LOSS_DIFFERENCE_MAX

PORTS = (29745, 29747)


def start_joining(root: Path) -> tuple[Work, subprocess.Popen[str]]:
    """A third node, whose program waits to join a gang of two."""
    joins = node(root, environment(2, PORTS[0], nodes=3) | {Env.JOINS_NEXT: "1"})
    process = joins.start()
    wait_until((joins.root / JOINED_FILE).is_file, process)
    assert (joins.root / SIZES_FILE).read_text() == "1"
    return joins, process


def wait_for_later_checkpoint(nodes: Sequence[Work], process: subprocess.Popen[str]) -> None:
    later = [each.checkpoints / f"step-{SAVED_STEP + 20:08d}" / MANIFEST_NAME for each in nodes]
    wait_until(lambda: all(each.is_file() for each in later), process)


def assert_is_the_uninterrupted_one(leader: Work, uninterrupted: Work, *, from_world_size: int) -> None:
    """By its losses, and by which samples each step had: each once an epoch, whatever ran the step."""
    resumed = leader.events("resumed")[0]
    assert (resumed["step"], resumed["from_world_size"]) == (SAVED_STEP, from_world_size)
    assert leader.events("finished")[0]["step"] == STEPS
    steps = range(1, STEPS + 1)
    assert [samples(leader)[step] for step in steps] == [samples(uninterrupted)[step] for step in steps]
    worst = max(abs(losses(leader)[step] - losses(uninterrupted)[step]) for step in steps)
    assert worst <= LOSS_DIFFERENCE_MAX


def test_a_gang_of_two_goes_on_with_three(uninterrupted: Work, tmp_path: Path) -> None:
    joins, third = start_joining(tmp_path / "joins")
    nodes = gang(tmp_path, PORTS[0])
    processes = [third, *(each.start() for each in nodes)]
    try:
        wait_for_later_checkpoint(nodes, processes[1])
        assert not joins.events(), "it has no ranks before it joins"
        together = join_parts(nodes, tmp_path / "together" / f"step-{SAVED_STEP:08d}")
        for rank, each in enumerate([*nodes, joins]):
            announce(each, together, PORTS[1], place=(rank, 3))
        ended = [finish(process) for process in [*processes[1:], third]]
    finally:
        for process in processes:
            kill_group(process)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    for _, output in ended:
        assert f"Generation 1 of the gang begins at step {SAVED_STEP}." in output
    assert "Waiting to join" in ended[2][1]
    assert not (joins.root / LOST_PEER_FILE).exists()
    assert [event["world_size"] for event in nodes[0].events("started")] == [2, 3]
    assert (joins.checkpoints / f"step-{STEPS - 20:08d}" / MANIFEST_NAME).is_file(), "it saves its own part"
    assert_is_the_uninterrupted_one(nodes[0], uninterrupted, from_world_size=2)


def test_a_gang_of_three_that_loses_one_goes_on_with_two(uninterrupted: Work, tmp_path: Path) -> None:
    """Who has the last rank has another one then."""
    nodes = gang(tmp_path, PORTS[0], nodes=3)
    processes = [each.start() for each in nodes]
    try:
        wait_for_later_checkpoint(nodes, processes[0])
        kill_group(processes[1])
        together = join_parts(nodes, tmp_path / "together" / f"step-{SAVED_STEP:08d}")
        for rank, each in enumerate([nodes[0], nodes[2]]):
            announce(each, together, PORTS[1], place=(rank, 2))
        ended = [finish(process) for process in (processes[0], processes[2])]
    finally:
        for process in processes:
            kill_group(process)
    assert [code for code, _ in ended] == [0, 0], ended
    assert_is_the_uninterrupted_one(nodes[0], uninterrupted, from_world_size=3)


@pytest.mark.parametrize("is_announced", [False, True], ids=["at once", "as it comes"])
def test_who_waits_to_join_is_stopped_at_once(tmp_path: Path, is_announced: bool) -> None:
    joins, process = start_joining(tmp_path / "joins")
    try:
        if is_announced:
            (joins.root / "gang.json").write_text('{"coming": 1}')
        process.terminate()
        code, output = finish(process, seconds=30)
    finally:
        kill_group(process)
    assert code == ExitCode.LOST_PEER, output
    assert not joins.events()
