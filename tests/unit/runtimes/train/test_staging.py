"""Saves copy into buffers that are made once, and what was copied stays as it was while the training goes on."""

from __future__ import annotations

from typing import Any

import torch

from runtimes.train.checkpoint import make_stager


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"], "step": 7}


def addresses(staged: Any) -> list[int]:
    """Where the bytes of each tensor lie."""
    if isinstance(staged, torch.Tensor):
        return [staged.untyped_storage().data_ptr()]
    return [each for value in staged.values() for each in addresses(value)] if isinstance(staged, dict) else []


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step(model, optimizer)
    return model, optimizer


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_every_save_copies_into_the_same_buffers() -> None:
    model, optimizer = trained()
    stager = make_stager(torch.device("cpu"))
    first: Any = stager.stage(state_of(model, optimizer))
    before = addresses(first)
    assert len(before) == 2 + 2 * 3, "weights and their moments, each with a step"
    for _ in range(3):
        step(model, optimizer)
        staged: Any = stager.stage(state_of(model, optimizer))
        assert addresses(staged) == before
        assert torch.equal(staged["model"]["weight"], model.weight)
    stager.close()


def test_what_was_copied_stays_while_the_training_goes_on() -> None:
    model, optimizer = trained()
    stager = make_stager(torch.device("cpu"))
    staged: Any = stager.stage(state_of(model, optimizer))
    kept = staged["model"]["weight"].clone()
    assert not set(addresses(staged)) & set(addresses(state_of(model, optimizer)))
    step(model, optimizer)
    assert torch.equal(staged["model"]["weight"], kept)
    assert not torch.equal(model.weight, kept)


def test_a_buffer_goes_with_its_tensor() -> None:
    stager = make_stager(torch.device("cpu"))
    for number in range(3):
        stager.stage({"gathered anew": torch.full((1000,), number)})
    assert len(stager._state_dict_stager._cached_storage_mapping) <= 1


def test_only_cuda_pins() -> None:
    assert make_stager(torch.device("cpu"))._config.use_pinned_memory is False
