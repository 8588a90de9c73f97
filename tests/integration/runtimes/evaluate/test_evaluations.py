"""Evaluations as an agent starts them: the same files whatever the batch, the devices and the interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from runtimes.contract import Env, ExitCode, complete_checkpoints, write_manifest
from tests.integration.runtimes.evaluate.worlds import CONFIG, counts, make_model, make_work, written
from tests.integration.runtimes.programs import Work, finish, kill_group, wait_until

pytest.importorskip("lm_eval")

REQUESTS = 114  # 32 choices, 8 sums and 6 texts for each of two models, and 22 samples on the map
SLOW = """
import time
from runtimes.evaluate.__main__ import main
from runtimes.evaluate.model import Model

answer = Model.answer

def slowly(self, request):
    time.sleep(0.05)
    return answer(self, request)

Model.answer = slowly
raise SystemExit(main())
"""
# A text is written for more than a minute, a token a second; what comes before takes no time.
LONG = """
import time
from runtimes.evaluate.__main__ import main
from runtimes.evaluate.model import Model

look = Model._leave_if_stopped
generate = Model._generate

def slowly(self, loaded, context, until, tokens_max):
    self._leave_if_stopped = lambda: (time.sleep(1), look(self))
    self._ends = frozenset()
    return generate(self, loaded, context, [], 100)

Model._generate = slowly
raise SystemExit(main())
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "base", seed=1)
    make_model(folder / "tuned", seed=2)
    return folder


@pytest.fixture(scope="module")
def undisturbed(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Work:
    work = make_work(tmp_path_factory.mktemp("undisturbed") / "work", models, batch_size=8)
    code, output = work.run()
    assert code == 0, output
    return work


@pytest.mark.parametrize(("batch_size", "devices"), [(1, 1), (3, 2)])
def test_results_are_equal_to_the_bit_for_any_batch_and_number_of_devices(
    batch_size: int, devices: int, models: Path, undisturbed: Work, tmp_path: Path
) -> None:
    env = {Env.DEVICES_PER_NODE.value: str(devices)}
    work = make_work(tmp_path / "work", models, env=env, batch_size=batch_size)
    code, output = work.run()
    assert code == 0, output
    assert counts(work) == counts(undisturbed) == (REQUESTS, 0)
    assert written(work) == written(undisturbed)
    (started,) = work.events("started")
    assert started["steps_total"] == work.events("step")[-1]["step"] == REQUESTS


def test_a_killed_evaluation_goes_on_and_computes_nothing_twice(
    models: Path, undisturbed: Work, tmp_path: Path
) -> None:
    every = {Env.CHECKPOINT_EVERY_STEPS.value: "10"}
    killed = slow_down(make_work(tmp_path / "killed", models, env=every, batch_size=1))
    process = killed.start()
    wait_until(lambda: len(killed.events("checkpointed")) >= 5, process)
    kill_group(process)
    checkpoint = complete_checkpoints(killed.checkpoints)[-1]
    saved = len((checkpoint / "answers.jsonl").read_text().splitlines())
    assert 50 <= saved < REQUESTS, "it was killed in the middle"

    resumed = make_work(tmp_path / "resumed", models, env={Env.RESUME_FROM.value: str(checkpoint)}, batch_size=3)
    code, output = resumed.run()
    assert code == 0, output
    assert counts(resumed) == (REQUESTS - saved, saved)
    assert written(resumed) == written(undisturbed)
    (event,) = resumed.events("resumed")
    assert event["step"] == saved
    assert all(event["step"] > saved for event in resumed.events("checkpointed")), "a node's checkpoints only grow"


@pytest.mark.soak  # the long request below is left by a SIGTERM, too
def test_sigterm_saves_every_answer_before_it_leaves(models: Path, undisturbed: Work, tmp_path: Path) -> None:
    stopped = slow_down(make_work(tmp_path / "stopped", models, batch_size=1))
    process = stopped.start()
    wait_until(lambda: any(event["step"] > 20 for event in stopped.events("step")), process)
    os.kill(process.pid, signal.SIGTERM)
    code, output = finish(process)
    assert code == ExitCode.STOPPED, output
    (checkpoint,) = complete_checkpoints(stopped.checkpoints)
    done = stopped.events("step")[-1]["step"]
    assert checkpoint.name == f"step-{done:08d}"
    # The same folder goes on without a checkpoint, too: by its own file.
    stopped.module = "runtimes.evaluate"
    code, output = stopped.run()
    assert code == 0, output
    assert counts(stopped) == (REQUESTS - done, done)
    assert written(stopped) == written(undisturbed)


def test_a_long_request_is_left_at_sigterm_and_what_came_before_is_saved(models: Path, tmp_path: Path) -> None:
    work = slow_down(make_work(tmp_path / "long", models, batch_size=64), LONG)
    process = work.start()
    wait_until(lambda: any(event["step"] >= 32 for event in work.events("step")), process)
    time.sleep(1)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    code, output = finish(process)
    assert code == ExitCode.STOPPED, output
    assert time.monotonic() - began < 20, "the request alone takes a minute and more"
    (checkpoint,) = complete_checkpoints(work.checkpoints)
    done = work.events("step")[-1]["step"]
    assert len((checkpoint / "answers.jsonl").read_text().splitlines()) == done >= 32


def test_a_checkpoint_of_a_thief_is_refused_before_anything_is_computed(models: Path, tmp_path: Path) -> None:
    saved = tmp_path / "step-00500000"
    saved.mkdir()
    (saved / "answers.jsonl").write_text("")
    write_manifest(saved, step=500_000, node_rank=0, nodes=1, world_size=1)
    work = make_work(tmp_path / "work", models, env={Env.RESUME_FROM.value: str(saved)})
    code, output = work.run()
    assert code == ExitCode.BAD_CHECKPOINT, output
    assert "is said to have 500000 answers, and has 0" in output
    assert not work.events("step")


def test_what_one_model_gained_and_lost_is_counted_drawn_and_mapped(undisturbed: Work) -> None:
    folder = undisturbed.root / "output"
    results = json.loads((folder / "results.json").read_text())
    assert [model["name"] for model in results["models"]] == ["base", "tuned"]
    assert {task["name"]: task["samples"] for task in results["tasks"]} == {"capitals": 8, "sums": 8, "proverbs": 6}
    lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 22
    texts = [line for line in lines if line["task"] == "proverbs"]
    base, tuned = (
        [line["scores"]["word_perplexity"] for line in texts if line["model"] == name] for name in ("base", "tuned")
    )
    by_hand = sum(b < a for a, b in zip(base, tuned, strict=True))
    (compared,) = (each for each in results["comparisons"] if each["task"] == "proverbs")
    assert compared["gained"] == by_hand > 0, "of a loss less is better"
    assert compared["gained"] + compared["lost"] + compared["kept"] == 6
    accuracy = results["models"][0]["metrics"]["capitals"]["acc"]
    correct = [line["scores"]["acc"] for line in lines if line["model"] == "base" and line["task"] == "capitals"]
    assert accuracy["value"] == sum(correct) / 8 and accuracy["stderr"] is not None
    page = (folder / "report.html").read_text()
    assert page.count("<circle") == 22 and 'class="gained"' in page and "<rect" in page
    assert not [word for word in ("<script", "http://", "https://", "src=", "@import", "url(") if word in page]


def slow_down(work: Work, program: str = SLOW) -> Work:
    """Run by this program; by SLOW each answer takes a twentieth of a second and more: time to be killed in."""
    folder = work.root / "slow"
    folder.mkdir()
    (folder / "slow_evaluate.py").write_text(program)
    work.module = "slow_evaluate"
    work.env["PYTHONPATH"] = f"{folder}:{Path(__file__).parents[4]}"
    return work


@pytest.mark.soak  # three evaluations; which folder a name means has tests without one
def test_models_in_a_shared_folder_are_asked_as_those_below_input(tmp_path: Path, models: Path) -> None:
    tasks = ["tasks/choice.yaml"]
    sent = make_work(tmp_path / "sent", models, tasks=tasks)
    assert sent.run()[0] == 0
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent" / "llms").symlink_to(models)
    lent = make_work(tmp_path / "work", models, env={Env.LENT_DIR: str(tmp_path / "lent")})
    for name in ("base", "tuned"):
        shutil.rmtree(lent.root / "input" / name)
    config = {**CONFIG, "tasks": tasks, "models": ["lent/llms/base", "lent/llms/tuned"]}
    (lent.root / "config.json").write_text(json.dumps(config))
    code, output = lent.run()
    assert code == 0, output
    found, wanted = (json.loads(written(each)["results.json"])["models"] for each in (lent, sent))
    assert [each.pop("name") for each in found] == ["lent/llms/base", "lent/llms/tuned"]
    assert [each.pop("name") for each in wanted] == ["base", "tuned"]
    assert found == wanted, "their digests are of their content"
    (lent.root / "config.json").write_text(json.dumps(config | {"models": ["lent/llms/gone"]}))
    assert lent.run()[0] == ExitCode.BAD_DATA
    assert "no such folder with a config.json in the shared host folder 'llms'" in lent.events("failed")[0]["message"]
