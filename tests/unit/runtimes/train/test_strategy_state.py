"""What a strategy takes over from a checkpoint: tensors alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from runtimes.train.strategies import base
from runtimes.train.strategies.ddp import Ddp

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process needs none of it
RANKS: Any = SimpleNamespace(checkpoint=None)


def made() -> tuple[nn.Module, torch.optim.AdamW]:
    model = nn.Linear(3, 2)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.8, 0.9))


@pytest.mark.parametrize(
    "planted",
    [{"betas": None}, {"eps": "x"}, {"weight_decay": None}, {"betas": (0.9,)}, {"params": ["of", "another"]}],
    ids=str,
)
def test_settings_that_a_stranger_saved_end_no_step(tmp_path: Path, planted: dict[str, Any]) -> None:
    """They would end the first step after "resumed", which is nobody's fault, until the job has no attempt left."""
    strategy = Ddp()
    model, optimizer = made()
    state = strategy.saved_state(model, optimizer)
    state["optimizer"]["param_groups"][0] |= planted
    save(state, storage_writer=FileSystemWriter(tmp_path / "step-00000003"), no_dist=True)

    resumed, fresh = made()
    strategy.load_state(tmp_path / "step-00000003", resumed, fresh, RANKS)
    assert torch.equal(resumed.weight, model.weight)
    assert fresh.param_groups[0]["betas"] == (0.8, 0.9)
    resumed(torch.ones(1, 3)).sum().backward()
    fresh.step()


@pytest.mark.parametrize("where", ["weights", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_found(where: str, number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of moments as well: they make the weights of the next step useless."""
    monkeypatch.setattr(base, "sum_over_ranks", lambda ranks, values: values)
    model: Any
    model, optimizer = made()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert Ddp().is_finite(model, optimizer, RANKS)
    with torch.no_grad():
        (model.weight if where == "weights" else optimizer.state[model.weight][where])[1, 2] = number
    assert not Ddp().is_finite(model, optimizer, RANKS)
