"""The runtimes on a real NVIDIA GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from runtimes import spare_ranks
from runtimes.contract import Env, complete_checkpoints
from runtimes.train.config import OFFLOADING_STRATEGIES
from runtimes.train.strategies.registry import STRATEGIES
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, kill_group, losses, wait_until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU, torch sees none"),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cuda_training_computes_in_bfloat16_saves_and_exports(strategy: str, tmp_path: Path) -> None:
    env: dict[str, str] = {Env.DEVICE_KIND: "cuda", Env.CHECKPOINT_EVERY_STEPS: "10"}
    config = {**MICRO_CONFIG, "dtype": "auto", "steps": 25, "strategy": strategy}
    work = Work(tmp_path / "work", ranks=1, env=env).write(config)
    code, output = work.run()
    assert code == 0, output
    started = work.events("started")[0]
    assert (started["device"], started["dtype"]) == ("cuda", "bfloat16")
    assert work.events("evaluated")[-1]["loss"] < work.events("evaluated")[0]["loss"]
    assert [folder.name for folder in complete_checkpoints(work.checkpoints)] == ["step-00000010", "step-00000020"]
    assert (work.root / "output" / "model" / "model.safetensors").is_file()


def test_ranks_that_use_the_gpu_were_forked(tmp_path: Path) -> None:
    """What a training imports asks the driver for no devices, or CUDA would work in no fork."""
    work = Work(tmp_path / "work", ranks=1, env={Env.DEVICE_KIND: "cuda"}).write({**MICRO_CONFIG, "steps": 200})
    process = work.start()
    try:
        wait_until(lambda: bool(work.events("step")), process)
        names = [each.name() for each in psutil.Process(process.pid).children()]
    finally:
        kill_group(process)
    assert names == [spare_ranks.NAME]


@pytest.mark.parametrize("strategy", OFFLOADING_STRATEGIES)
def test_offloaded_training_has_the_losses_of_one_that_is_not(strategy: str, tmp_path: Path) -> None:
    found = {}
    for offload in ("none", "all"):
        env: dict[str, str] = {Env.DEVICE_KIND: "cuda", Env.CHECKPOINT_EVERY_STEPS: "5"}
        config = {**MICRO_CONFIG, "dtype": "float32", "steps": 12, "strategy": strategy, "offload": offload}
        work = Work(tmp_path / offload, ranks=1, env=env).write(config)
        code, output = work.run()
        assert code == 0, output
        assert "there is no GPU" not in output
        assert complete_checkpoints(work.checkpoints)
        found[offload] = losses(work)
    assert found["all"] == pytest.approx(found["none"], rel=1e-4)


def test_cuda_device_is_measured_by_index() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "runtimes.probe", "--devices", "cuda:0", "--seconds", "2", "--json"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(ended.stdout)["devices"][0]
    assert measured["flops_per_second"]["bfloat16"] > 1e12
    assert measured["memory_bytes_per_second"] > 1e11
