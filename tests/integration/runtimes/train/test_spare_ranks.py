"""A process that a launcher forked becomes a rank, and ends where none is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from runtimes.contract import Env, ExitCode
from runtimes.spare_ranks import COMMAND, NAME, start_spares
from tests import warm
from tests.integration.runtimes.programs import MICRO_CONFIG, SECONDS_MAX, Work

# What a launcher does, in a process of its own: forks are never made of a test's.
LAUNCHER = """
import json, os, sys
import psutil
from runtimes.spare_ranks import COMMAND, SpareRanks, load
{before}
load()
spares = SpareRanks({count})
family = [(each.name(), each.pid) for each in psutil.Process().children()]
{then}
"""


def launcher(
    then: str, *, count: int = 1, before: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = LAUNCHER.format(count=count, before=before, then=then)
    return subprocess.run(
        [sys.executable, "-c", program],
        env=warm.environment() | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_a_spare_becomes_the_rank_with_its_environment_and_arguments(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"learning_rate": "much"}')
    command = [*COMMAND, "--config", str(tmp_path / "config.json")]
    env = warm.environment() | {Env.WORK_DIR: str(tmp_path), Env.EVENTS: str(tmp_path / "events.jsonl")}
    ended = launcher(
        f"rank = spares.take({command!r}, json.loads({json.dumps(env)!r}))\n"
        f"print(json.dumps([family, rank.pid, rank.wait({SECONDS_MAX}), spares.take(COMMAND, {{}})]), flush=True)"
    )
    # What it printed came once, and by itself: a fork shares neither buffers nor the launcher's end.
    family, pid, code, none = json.loads(ended.stdout)
    assert family == [[NAME, pid]]
    assert code == ExitCode.BAD_CONFIG
    assert "learning_rate" in ended.stderr
    assert none is None, "there was one"


def test_spares_without_an_order_end_with_their_launcher() -> None:
    for end in ("sys.exit()", "os.kill(os.getpid(), 9)"):
        ended = launcher(f"print(*[pid for _, pid in family], flush=True); {end}", count=2)
        pids = [int(word) for word in ended.stdout.split()]
        assert len(pids) == 2  # and its output was closed by all three, or `run` would still wait for its end


def test_a_spare_that_has_ended_and_another_program_are_started_as_ever() -> None:
    ended = launcher(
        "print(spares.take([sys.executable, '-u', '-m', 'some.module'], {}))\n"
        "os.kill(family[0][1], 9)\n"
        "os.waitid(os.P_PID, family[0][1], os.WEXITED | os.WNOWAIT)\n"
        "print(spares.take(COMMAND, {}))"
    )
    assert ended.stdout.split() == ["None", "None"], ended.stderr


def test_a_rank_has_one_thread_though_libraries_had_more() -> None:
    threads = "print(os.listdir('/proc/self/task'), len(os.listdir(f'/proc/{family[0][1]}/task')))"
    ended = launcher(threads, env={"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"})
    assert ended.stdout.endswith(" 1\n"), ended.stdout + ended.stderr


def test_a_stop_that_comes_while_it_waits_is_kept_for_the_rank(tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=1).write({**MICRO_CONFIG, "steps": 1000})
    env = warm.environment() | {Env.WORK_DIR: str(work.root), Env.EVENTS: str(work.root / "events.jsonl")}
    ended = launcher(
        "os.kill(family[0][1], 15)\n"
        f"rank = spares.take(COMMAND, json.loads({json.dumps(env)!r}))\n"
        f"print(rank.wait({SECONDS_MAX}))"
    )
    assert int(ended.stdout.splitlines()[-1]) == ExitCode.STOPPED, ended.stderr
    assert [event["step"] for event in work.events("checkpointed")] == [1]


def test_nothing_is_forked_where_the_driver_was_asked_for_devices() -> None:
    """CUDA works in no fork of a process that did; torch knows it by then."""
    ended = launcher("print(family)", before="import torch; torch.cuda._is_in_bad_fork = lambda: True")
    assert ended.stdout.strip() == "[]", ended.stderr


def test_only_our_training_has_spares() -> None:
    assert start_spares({Env.NODES: "2"}, "some.module") is None
