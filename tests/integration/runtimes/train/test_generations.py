"""A node of a gang is lost and replaced: the other node's launcher stays, and the training is the uninterrupted one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from runtimes import spare_ranks
from runtimes.contract import GANG_FILE, JOINED_FILE, LOST_PEER_FILE, MANIFEST_NAME, Env, ExitCode
from tests.integration.runtimes.conftest import STEPS
from tests.integration.runtimes.programs import Work, finish, kill_group, losses, samples, wait_until
from tests.integration.runtimes.train.gang_nodes import SAVED_STEP, announce, environment, gang, join_parts, node
from tests.integration.runtimes.train.test_resume import LOSS_DIFFERENCE_MAX

PORTS = (29741, 29743)


def freeze_group(process: subprocess.Popen[str]) -> None:
    """Its node has no power any more: nothing is answered, and no connection is closed."""
    os.killpg(process.pid, signal.SIGSTOP)
    children = subprocess.run(["ps", "-eo", "pid,pgid,ppid"], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in children.splitlines()[1:]]
    family = {process.pid}
    while more := {pid for pid, _, parent in rows if parent in family} - family:
        family |= more
    for pid in family:
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("lost", "is_frozen"),
    [
        pytest.param(1, False, id="second", marks=pytest.mark.soak),
        pytest.param(0, False, id="first"),
        pytest.param(1, True, id="frozen"),
    ],
)
def test_the_rest_of_a_gang_goes_on_with_another_node(
    lost: int, is_frozen: bool, uninterrupted: Work, tmp_path: Path
) -> None:
    nodes = gang(tmp_path, PORTS[0])
    processes = [each.start() for each in nodes]
    stays = 1 - lost
    later = [each.checkpoints / f"step-{SAVED_STEP + 20:08d}" / MANIFEST_NAME for each in nodes]
    try:
        wait_until(lambda: all(each.is_file() for each in later), processes[stays])
        (freeze_group if is_frozen else kill_group)(processes[lost])
        together = join_parts(nodes, tmp_path / "together" / f"step-{SAVED_STEP:08d}")
        began = {Env.RESUME_FROM: str(together), Env.GENERATION: "1"}
        other = node(tmp_path / "other", environment(lost, PORTS[1]) | began)
        (other.root / GANG_FILE).write_text('{"generation": 1}')  # as its agent does for who begins in a later one
        announce(nodes[stays], together, PORTS[1])
        third = other.start()
        wait_until(lambda: (nodes[stays].root / JOINED_FILE).read_text() == "1", processes[stays])
        leader = other if lost == 0 else nodes[0]
        wait_until(lambda: bool(leader.events("resumed")), processes[stays])
        family = psutil.Process(processes[stays].pid).children(recursive=True)
        assert any(each.name() == spare_ranks.NAME for each in family)
        assert not any("LOCAL_RANK" in each.environ() for each in family), "a rank that was not waiting"
        code, output = finish(processes[stays])
        other_code, other_output = finish(third)
        assert (code, other_code) == (0, 0), output
        assert "Generation 1" not in other_output, "it began in it"
    finally:
        for process in processes:
            kill_group(process)
    assert f"Generation 1 of the gang begins at step {SAVED_STEP}." in output
    first = leader.events("resumed")[0]
    assert (first["step"], first["from_world_size"]) == (SAVED_STEP, 2)
    assert losses(leader)[STEPS] == pytest.approx(losses(uninterrupted)[STEPS], abs=LOSS_DIFFERENCE_MAX)
    steps = range(SAVED_STEP + 1, STEPS + 1)
    assert [samples(leader)[step] for step in steps] == [samples(uninterrupted)[step] for step in steps]
    assert leader.events("finished")[0]["step"] == STEPS


def test_a_stop_ends_the_waiting_for_another_node(tmp_path: Path) -> None:
    nodes = gang(tmp_path, PORTS[0])
    processes = [each.start() for each in nodes]
    try:
        wait_until(lambda: bool(nodes[0].events("step")), processes[0])
        kill_group(processes[1])
        assert processes[0].stdout is not None
        lines = iter(processes[0].stdout.readline, "")
        assert any("A peer may be lost" in line for line in lines)
        assert (nodes[0].root / LOST_PEER_FILE).read_text() == "0"
        processes[0].send_signal(signal.SIGTERM)
        code, output = finish(processes[0], seconds=30)
    finally:
        for process in processes:
            kill_group(process)
    assert code == ExitCode.LOST_PEER, output


def test_who_is_at_fault_itself_waits_for_nobody(tmp_path: Path) -> None:
    nodes = gang(tmp_path, PORTS[0])
    for each in nodes:
        (each.root / "input" / "docs.jsonl").write_text("no JSON\n")
    processes = [each.start() for each in nodes]
    try:
        for process in processes:
            code, output = finish(process, seconds=60)
            assert code == ExitCode.BAD_DATA
            assert "A peer may be lost" not in output
    finally:
        for process in processes:
            kill_group(process)


def test_a_stop_between_two_generations_reaches_the_ranks_that_are_started_then(tmp_path: Path) -> None:
    """The signal comes when there is no child: it is kept for the next one."""
    work = tmp_path / "work"
    (work / "checkpoint").mkdir(parents=True)
    program = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(75)); time.sleep(60)"
    env = {**os.environ, Env.WORK_DIR: str(work), Env.CHECKPOINT_DIR: str(work / "checkpoint"), Env.GENERATION: "0"}
    code = (
        "import os, signal, subprocess, sys, time\n"
        "from runtimes.generations import Launcher\n"
        f"launcher = Launcher(['-c', {program!r}], os.environ)\n"
        "launcher._hand_on(signal.SIGTERM, None)\n"
        "real = subprocess.Popen.send_signal\n"
        "subprocess.Popen.send_signal = lambda child, number: (time.sleep(1), real(child, number))[1]\n"
        "sys.exit(launcher.run())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == ExitCode.STOPPED, done.stderr
