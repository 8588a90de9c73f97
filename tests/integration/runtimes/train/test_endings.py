"""How a training ends: done, stopped, or out of memory; each with its code and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from runtimes.contract import Env, ExitCode, complete_checkpoints, read_manifest, sha256_file
from runtimes.train.__main__ import classify
from runtimes.train.errors import BadConfig, LostPeer, OutOfMemory, TrainError
from tests.integration.runtimes.conftest import STEPS
from tests.integration.runtimes.programs import (
    MICRO_CONFIG,
    MICRO_MODEL,
    Work,
    abort_on_exit,
    finish,
    losses,
    wait_until,
)
from tests.integration.runtimes.serve.replicas import make_llama


def test_finished_training_reports_every_stage_in_events(uninterrupted: Work) -> None:
    kinds = [event["event"] for event in uninterrupted.events()]
    assert kinds[:2] == ["started", "evaluated"]
    assert kinds[-3:] == ["sampled", "exported", "finished"]
    started, finished = uninterrupted.events("started")[0], uninterrupted.events("finished")[0]
    assert (started["world_size"], started["device"], started["dtype"]) == (2, "cpu", "float32")
    assert started["steps_total"] == finished["step"] == STEPS
    assert started["tokens_total"] == finished["tokens"] == STEPS * 9 * 32
    assert list(losses(uninterrupted)) == list(range(1, STEPS + 1))
    evaluated = {event["step"]: event["loss"] for event in uninterrupted.events("evaluated")}
    assert list(evaluated) == [0, 50, 100]
    assert evaluated[100] < evaluated[0] - 1


@pytest.mark.parametrize(
    "forks", [pytest.param(True, id="forked"), pytest.param(False, id="started", marks=pytest.mark.soak)]
)
def test_finished_rank_is_not_aborted_by_what_gloo_still_holds(forks: bool, tmp_path: Path) -> None:
    hook = abort_on_exit(tmp_path / "hook", forks=forks)
    path = os.pathsep.join([hook, str(Path(__file__).parents[4])])
    work = Work(tmp_path / "work", ranks=2, env={"PYTHONPATH": path})
    work.write({**MICRO_CONFIG, "steps": 1, "sample_every": -1})
    code, output = work.run()
    assert code == ExitCode.OK, output
    assert work.events("finished")


def test_exported_model_loads_in_transformers_and_writes_text(uninterrupted: Work) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = uninterrupted.root / "output" / "model"
    assert (folder / "model.safetensors").is_file()
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.architectures == ["LlamaForCausalLM"]
    assert tokenizer.eos_token_id == model.config.eos_token_id == 0
    asked = tokenizer("The ", return_tensors="pt")
    written = model.generate(**asked, max_new_tokens=12, do_sample=False)
    assert len(tokenizer.decode(written[0][asked["input_ids"].shape[1] :])) > 0
    # The weights are the trained ones: the loss on the data is what the training reported, not a fresh model's.
    text = (uninterrupted.root / "input" / "more.txt").read_text()[:2000]
    ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :33]
    assert model(ids, labels=ids).loss.item() < 5.2


def test_training_starts_from_the_weights_and_the_tokenizer_of_a_model_folder(
    uninterrupted: Work, tmp_path: Path
) -> None:
    work = Work(tmp_path / "work", ranks=1, launched=False)
    work.write({**MICRO_CONFIG, "model": "mine", "steps": 1, "sample_every": -1})
    shutil.copytree(uninterrupted.root / "output" / "model", work.root / "input" / "mine")
    code, output = work.run()
    assert code == 0, output
    # The same data, cut alike: the evaluation begins where the other training ended.
    assert work.events("evaluated")[0]["loss"] == pytest.approx(uninterrupted.events("evaluated")[-1]["loss"], abs=1e-4)


def test_sigterm_saves_at_the_next_step_and_ends_with_75(tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=2).write({**MICRO_CONFIG, "steps": 100_000})
    process = work.start()
    wait_until(lambda: len(work.events("step")) >= 3, process)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == ExitCode.STOPPED, output
    saved = complete_checkpoints(work.checkpoints)
    last = max(losses(work))
    assert [folder.name for folder in saved] == [f"step-{last:08d}"]
    manifest = read_manifest(saved[0])
    assert (manifest["step"], manifest["world_size"], manifest["node_rank"], manifest["nodes"]) == (last, 2, 0, 1)
    assert all(sha256_file(saved[0] / entry["path"]) == entry["sha256"] for entry in manifest["files"])
    assert {".metadata", "trainer.json", "tokenizer.json"} <= {entry["path"] for entry in manifest["files"]}
    assert not work.events("failed")


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (1 << 40, "the model is larger than any memory"),
        (1 << 22, "out of memory, take a smaller micro_batch_size or sequence_length"),  # 64 TiB a matrix
    ],
)
def test_model_too_large_for_the_memory_ends_with_77(tmp_path: Path, width: int, message: str) -> None:
    work = Work(tmp_path / "work", ranks=1, launched=False).write({**MICRO_CONFIG, "steps": 1})
    giant = {**MICRO_MODEL, "hidden_size": width}
    (work.root / "input" / "micro-llama" / "config.json").write_text(json.dumps(giant))
    code, output = work.run()
    assert code == ExitCode.OUT_OF_MEMORY, output
    failed = work.events("failed")[0]
    assert failed["exit_code"] == ExitCode.OUT_OF_MEMORY
    assert failed["message"].startswith(message)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (BadConfig(["steps is missing"]), BadConfig, 64),
        (MemoryError("not enough memory"), OutOfMemory, 77),
        (MemoryError(), OutOfMemory, 77),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemory, 77),
        (RuntimeError("Connection closed by peer"), LostPeer, 79),
        (KeyboardInterrupt(), TrainError, 70),
    ],
)
def test_every_error_has_a_code(error: BaseException, kind: type[TrainError], code: int) -> None:
    named = classify(error)
    assert type(named) is kind
    assert named.exit_code == code


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_training_whose_gradient_is_never_finite_ends_with_65(strategy: str, tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=2)
    work.write({**MICRO_CONFIG, "model": "mine", "steps": 50, "sample_every": -1, "strategy": strategy})
    weights = make_llama(work.root / "input" / "mine") / "model.safetensors"
    planted = load_file(weights)
    planted["model.norm.weight"][3] = 3e38  # finite, and nothing that is computed with it
    save_file(planted, weights, metadata={"format": "pt"})
    code, output = work.run()
    assert code == ExitCode.BAD_DATA, output
    assert "take a lower learning_rate" in work.events("failed")[0]["message"]
    steps = work.events("step")
    assert (steps[-1]["skipped"], len(steps), steps[-1]["gradient_norm"]) == (19, 19, None)


def test_weights_that_are_not_finite_are_refused_before_the_first_step(tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=2)
    work.write({**MICRO_CONFIG, "model": "mine", "steps": 50, "sample_every": -1})
    weights = make_llama(work.root / "input" / "mine") / "model.safetensors"
    planted = load_file(weights)
    planted["model.layers.1.mlp.up_proj.weight"][-1, -1] = float("nan")
    save_file(planted, weights, metadata={"format": "pt"})
    code, output = work.run()
    assert code == ExitCode.BAD_DATA, output
    assert work.events("failed")[0]["message"] == "model 'mine' has weights that are not finite"


def test_stop_before_the_first_step_loses_nothing(tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=1, env={Env.CHECKPOINT_EVERY_STEPS: "2"}, launched=False)
    process = work.write({**MICRO_CONFIG, "steps": 100_000}).start()
    wait_until(lambda: bool(work.events("started")), process)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == ExitCode.STOPPED, output
    assert complete_checkpoints(work.checkpoints)
