"""What one step does and counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from runtimes.train.errors import BadData
from runtimes.train.loop import SKIPPED_IN_A_ROW_MAX, accept_gradient
from runtimes.train.model import ModelSource, flops_per_token, new_model

NOT_FINITE = [torch.tensor(float("nan")), torch.tensor(float("inf"))]
SHAPE: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 500}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"intermediate_size": 160, "num_key_value_heads": 2, "tie_word_embeddings": False},
    "qwen3": {"intermediate_size": 160, "num_key_value_heads": 2, "tie_word_embeddings": True, "head_dim": 32},
    "gpt2": {"tie_word_embeddings": True},
}


def training(**changes: Any) -> Any:
    ranks = SimpleNamespace(is_leader=False)
    config = SimpleNamespace(steps_total=1000)
    usual = {"ranks": ranks, "config": config, "step": 100, "skipped": 0, "skipped_in_a_row": 0, "started_at": 0}
    return SimpleNamespace(**usual | changes)


def skip(this: Any, steps: int) -> None:
    for _ in range(steps):
        assert not accept_gradient(this, NOT_FINITE[this.step % 2])
        this.step += 1


def test_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    this = training()
    skip(this, SKIPPED_IN_A_ROW_MAX - 1)
    assert accept_gradient(this, torch.tensor(1.5))
    skip(this, SKIPPED_IN_A_ROW_MAX - 1)
    assert this.skipped == 2 * (SKIPPED_IN_A_ROW_MAX - 1)


def test_gradients_that_are_never_finite_end_the_training_as_its_owners_fault() -> None:
    this = training()
    skip(this, SKIPPED_IN_A_ROW_MAX - 1)
    with pytest.raises(BadData, match="not finite for 20 steps in a row: take a lower learning_rate"):
        accept_gradient(this, NOT_FINITE[0])


def test_short_training_without_a_finite_gradient_does_not_complete() -> None:
    this = training(started_at=985, step=985)
    skip(this, 14)
    with pytest.raises(BadData, match="not finite for 15 steps in a row"):
        accept_gradient(this, NOT_FINITE[0])


@pytest.mark.parametrize("kind", MODELS)
def test_flops_of_a_token_are_those_that_torch_counts(kind: str) -> None:
    whole = MODELS[kind] | {"attn_implementation": "eager"}  # whose products torch counts
    config = AutoConfig.for_model(kind, **SHAPE, **whole)
    model = new_model(ModelSource(kind, config, None, has_weights=False))
    ids = torch.randint(0, 500, (2, 32))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert flops_per_token(model, 32) == pytest.approx(counter.get_total_flops() / ids.numel(), rel=0.03)


def test_flops_of_a_model_with_experts_are_not_guessed() -> None:
    config = AutoConfig.for_model("mixtral", **SHAPE, intermediate_size=160, num_key_value_heads=2, num_local_experts=4)
    assert flops_per_token(new_model(ModelSource("mixtral", config, None, has_weights=False)), 32) is None
