"""An interpreter that has loaded torch becomes a rank, and ends where none is needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from runtimes.contract import Env, ExitCode
from runtimes.spare_ranks import COMMAND, SpareRanks, start_spares
from tests.integration.runtimes.programs import SECONDS_MAX

REPOSITORY = Path(__file__).parents[4]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("SOUK_")},
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(REPOSITORY),
}


def test_a_spare_becomes_the_rank_with_its_environment_and_arguments(tmp_path: Path) -> None:
    spares = SpareRanks(1, ENVIRONMENT)
    (tmp_path / "config.json").write_text('{"learning_rate": "much"}')
    arguments = ["--config", str(tmp_path / "config.json")]
    folders = {Env.WORK_DIR: str(tmp_path), Env.EVENTS: str(tmp_path / "events.jsonl")}
    rank = spares.take([*COMMAND, *arguments], ENVIRONMENT | folders)
    assert rank is not None
    assert rank.wait(SECONDS_MAX) == ExitCode.BAD_CONFIG
    assert spares.take(COMMAND, ENVIRONMENT) is None, "there was one"


def test_a_spare_without_an_order_ends_with_its_launcher() -> None:
    (spare,) = SpareRanks(1, ENVIRONMENT)._waiting
    assert spare.stdin is not None
    spare.stdin.close()
    assert spare.wait(SECONDS_MAX) == 0


def test_a_spare_that_has_ended_and_another_program_are_started_as_ever() -> None:
    spares = SpareRanks(1, ENVIRONMENT)
    assert spares.take([sys.executable, "-u", "-m", "some.module"], ENVIRONMENT) is None
    (spare,) = spares._waiting
    spare.kill()
    spare.wait()
    assert spares.take(COMMAND, ENVIRONMENT) is None


def test_only_our_training_in_a_gang_has_spares() -> None:
    assert start_spares(ENVIRONMENT | {Env.NODES: "1"}, "runtimes.train") is None
    assert start_spares(ENVIRONMENT | {Env.NODES: "2"}, "some.module") is None
