"""What `offload` changes: where a model lies, and no loss. On processors both places are the same memory; what a GPU
shows beyond that is in tests/gpu/runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import ExitCode
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses

SECONDS_MAX = 200.0


def train(folder: Path, **config: Any) -> tuple[Work, str, int]:
    work = Work(folder, ranks=2, launched=True)
    settings = {"steps": 4, "evaluate_every": 0, "sample_every": -1, "micro_batch_size": 1}
    work.write({**MICRO_CONFIG, **settings, **config})
    code, output = finish(work.start(), seconds=SECONDS_MAX)
    return work, output, code


def test_losses_are_the_same_with_the_model_in_the_nodes_memory(tmp_path: Path) -> None:
    plain, output, code = train(tmp_path / "plain")
    assert code == ExitCode.OK, output
    offloaded, output, code = train(tmp_path / "offloaded", offload="all")
    assert code == ExitCode.OK, output
    assert "offload: the model lies in the node's memory anyway" in output
    # Ranks that offload exchange gradients in every pass, so that sums are made in another order.
    assert losses(offloaded) == pytest.approx(losses(plain), rel=1e-5)


def test_replicas_cannot_offload_and_say_what_can(tmp_path: Path) -> None:
    _, output, code = train(tmp_path, offload="all", strategy="ddp")
    assert code == ExitCode.BAD_CONFIG
    assert "offload needs strategy fsdp2 or hsdp, got ddp" in output
