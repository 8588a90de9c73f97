"""Sampled text: every rank draws the same tokens, because each pass gathers the shards of all."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import nn

from runtimes.train.errors import BadData
from runtimes.train.parallel import Ranks

SAMPLED_TOKENS = 48
TEMPERATURE = 0.8
TOP_K = 50


@torch.no_grad()
def sample_text(
    model: nn.Module, tokenizer: Tokenizer, ranks: Ranks, *, prompt: str, end_id: int, context: int, seed: int
) -> str:
    """Text that follows `prompt`, without it; decided by weights and `seed`. `context`: tokens the model takes.

    It ends where the model of a training that diverged has no probabilities any more. Raises BadData.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = (encode_prompt(tokenizer, prompt) or [end_id])[-max(1, context - SAMPLED_TOKENS) :]
    drawn: list[int] = []
    fed, cache = torch.tensor([ids], device=ranks.device), None  # (1, n)
    model.eval()
    for _ in range(min(SAMPLED_TOKENS, max(1, context - len(ids)))):
        output = model(input_ids=fed, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits = output.logits[0, -1].float().cpu() / TEMPERATURE  # (V,)
        best, where = logits.topk(min(TOP_K, len(logits)))
        chances = best.softmax(0)
        if not bool(chances.isfinite().all()):
            break
        token = int(where[torch.multinomial(chances, 1, generator=generator)])
        if token == end_id:
            break
        drawn.append(token)
        fed = torch.tensor([[token]], device=ranks.device)
    model.train()
    try:
        return str(tokenizer.decode(drawn))
    except Exception as error:  # its library raises no narrower one
        raise BadData(f"the tokenizer cannot decode what the model wrote: {error}") from error


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Its tokens; raises BadData where the customer's tokenizer has none for a character of it."""
    try:
        return list(tokenizer.encode(prompt).ids)
    except Exception as error:  # its library raises no narrower one
        raise BadData(f"the tokenizer cannot encode sample_prompt: {error}") from error
