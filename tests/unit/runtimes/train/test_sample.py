"""A sample is the last thing that a training does: it fails none whose work is done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn

from runtimes.train.errors import BadData
from runtimes.train.sample import sample_text

RANKS: Any = SimpleNamespace(device=torch.device("cpu"))


class Says(nn.Module):
    """A model whose every next token has these logits."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self._logits = torch.tensor(logits)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self._logits.expand(1, input_ids.shape[1], -1), past_key_values=None)


def words() -> Tokenizer:
    """A tokenizer that knows two words, and has no token for others."""
    return Tokenizer(models.WordLevel({"yes": 0, "no": 1}, unk_token="[UNK]"))


def sample(model: nn.Module, prompt: str = "yes") -> str:
    return sample_text(model, words(), RANKS, prompt=prompt, end_id=1, context=8, seed=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_training_that_diverged_has_an_empty_sample_and_is_done(value: float) -> None:
    """It ran as long as any other: as the runtime's own fault nobody would pay for it, three times."""
    assert sample(Says([value, 0.0])) == ""


def test_a_model_with_numbers_has_words() -> None:
    assert sample(Says([9.0, -9.0])).startswith("yes")


def test_a_prompt_that_the_customers_tokenizer_cannot_encode_is_the_customers_fault() -> None:
    with pytest.raises(BadData, match="sample_prompt"):
        sample(Says([9.0, -9.0]), prompt="perhaps")
